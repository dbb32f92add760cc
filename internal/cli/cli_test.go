package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int // 0: taken
		says string
	}{
		{nil, 0, ""},
		{[]string{"-n", "3", "-log", "warn"}, 0, ""},
		{[]string{"-h"}, 0, "Usage: name [flags]"},
		{[]string{"-n", "x"}, 2, "name: invalid value \"x\" for flag -n"},
		{[]string{"-log", "loud"}, 2, "want debug, info, warn, error or off"},
		{[]string{"-what"}, 2, "(-h lists all flags)"},
		{[]string{"-n", "1", "more"}, 2, "unexpected argument \"more\": flags only"},
	} {
		var out, errOut bytes.Buffer
		var level zerolog.Level
		fs := Flags("name")
		fs.Int("n", 0, "a `number`")
		LevelFlag(fs, &level)
		code := 0
		if err := Parse(fs, tt.args, "[flags]", &out); err != nil {
			code = Refused("name", err, &errOut)
		} else if want := map[bool]zerolog.Level{true: zerolog.WarnLevel, false: zerolog.InfoLevel}[len(tt.args) > 2]; level != want {
			t.Errorf("%q: level %v", tt.args, level)
		}
		if said := out.String() + errOut.String(); code != tt.code || !strings.Contains(said, tt.says) || tt.says == "" && said != "" {
			t.Errorf("%q: code %d, %q; want %d, %q in it", tt.args, code, said, tt.code, tt.says)
		}
		if strings.Count(errOut.String(), "\n") > 1 {
			t.Errorf("%q: more than a line: %q", tt.args, errOut.String())
		}
	}
	if !errors.Is(Parse(Flags("name"), []string{"-h"}, "", new(bytes.Buffer)), flag.ErrHelp) {
		t.Error("help is no error")
	}
}

// A file gets no colours.
func TestLog(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := Log(file, zerolog.WarnLevel)
	log.Info().Msg("quiet")
	log.Warn().Msg("loud")
	text, err := os.ReadFile(file.Name())
	if err != nil || strings.Contains(string(text), "quiet") || !strings.Contains(string(text), "loud") || strings.Contains(string(text), "\x1b") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWait(t *testing.T) {
	broken := errors.New("broken")
	if err := Wait(t.Context(), func() error { return broken }, func() { t.Error("nobody asked") }); err != broken {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	cancel()
	err := Wait(ctx, func() error {
		<-drained
		return nil
	}, func() { close(drained) })
	if err != nil {
		t.Error(err)
	}
}

func TestCannotStart(t *testing.T) {
	inUse := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	for _, tt := range []struct {
		err  error
		code int
		says string
	}{
		{fmt.Errorf("loop: %w", inUse), 1, "name: tcp://:1 is in use: stop the program that listens there, or choose another address, as with -addr tcp://:2\n"},
		{&net.OpError{Op: "listen", Err: syscall.EACCES}, 1, "name: cannot listen: "},
		{errors.New("MaxConns is negative"), 2, "name: invalid flags: MaxConns is negative\n"},
	} {
		var out bytes.Buffer
		if code := CannotStart("name", tt.err, "tcp://:1", "tcp://:2", &out); code != tt.code || !strings.HasPrefix(out.String(), tt.says) {
			t.Errorf("%v: code %d, %q", tt.err, code, out.String())
		}
	}
}

func TestCheckAddr(t *testing.T) {
	for _, addr := range []string{
		"tcp://:7000", "tcp4://127.0.0.1:0", "tcp6://[::1]:65535", "tcp://host.example:http", "unix://x", "unix:///run/x.sock",
	} {
		if err := CheckAddr(addr, "tcp", "unix"); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for addr, want := range map[string]string{
		"": "want tcp://host:port or unix://path", "127.0.0.1:7000": "want tcp://host:port or unix://path", "udp://:7000": "want tcp://host:port or unix://path",
		"tcp5://:7000": "want tcp://host:port or unix://path", "tcp://": "missing port", "tcp://127.0.0.1": "missing port", "tcp://::1:7000": "too many colons",
		"tcp://:": `"" is no port`, "tcp://:65536": `"65536" is no port`, "tcp://:-1": `"-1" is no port`, "tcp://:none": `"none" is no port`,
		"unix://": "want unix://path",
	} {
		if err := CheckAddr(addr, "tcp", "unix"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", addr, err, want)
		}
	}
	if err := CheckAddr("tcp4://:1", "udp"); err == nil || !strings.Contains(err.Error(), "want udp://host:port") {
		t.Error(err)
	}
}

func TestCannotListen(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EADDRINUSE:    "name: :1 is in use: stop the program that listens there, or choose another address, as with -metrics :2\n",
		syscall.EADDRNOTAVAIL: "name: cannot listen for -metrics: listen: " + syscall.EADDRNOTAVAIL.Error() + "\n",
	} {
		var out bytes.Buffer
		if code := CannotListen("name", "-metrics", &net.OpError{Op: "listen", Err: err}, ":1", ":2", &out); code != 1 || out.String() != want {
			t.Errorf("%v: code %d, %q", err, code, out.String())
		}
	}
}
