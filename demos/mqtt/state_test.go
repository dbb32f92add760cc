package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A file that is no state, or a damaged one, ends the start: the error names the file, and says what
// to do.
func TestStateFileDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	b := &broker{srv: &loop.Server{}} // without shards
	if err := b.saveFile(file); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{"empty": {}, "text": []byte("hello, no state\n"), "truncated": good[:len(good)-1]}
	for i := range good {
		flipped := bytes.Clone(good)
		flipped[i] ^= 1
		damaged[fmt.Sprint("bit of byte ", i)] = flipped
	}
	for _, kept := range []bool{false, true} {
		if kept {
			_ = os.WriteFile(file+oldSuffix, good, 0o600)
		}
		for name, data := range damaged {
			_ = os.WriteFile(file, data, 0o600)
			err := b.loadFile(file)
			if err == nil || !strings.Contains(err.Error(), file+" is no state") || !strings.Contains(err.Error(), "move it away") ||
				strings.Contains(err.Error(), file+oldSuffix) != kept {
				t.Errorf("%s, %s there: %v: got %v, want an error that says what to do", name, oldSuffix, kept, err)
			}
		}
	}
	_ = os.WriteFile(file, good, 0o600)
	if err := b.loadFile(file); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// A start without a file is empty, and leaves FILE.old alone: it is the last state that there is. The
// log says so.
func TestStateFileOldIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var log bytes.Buffer
	start := func(want int) {
		t.Helper()
		log.Reset()
		b := &broker{srv: &loop.Server{Logger: zerolog.New(&log)}}
		if err := b.loadFile(file); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), file+oldSuffix); got != want {
			t.Errorf("the log names %s %d times, want %d: %s", oldSuffix, got, want, log.String())
		}
	}
	start(0)
	_ = os.WriteFile(file+oldSuffix, []byte("of the past"), 0o600)
	start(1)
	if got, err := os.ReadFile(file + oldSuffix); string(got) != "of the past" {
		t.Errorf("%s has %q, %v; want what it had", oldSuffix, got, err)
	}
}

// TestStateFile: a state is loaded once. If the next one cannot be written, the operator finds it
// under another name. -state may be a symbolic link, which stays one.
func TestStateFile(t *testing.T) {
	dir, addr := t.TempDir(), testkit.FreeAddr(t)
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	real := filepath.Join(data, "real")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gone := func(file string) {
		t.Helper()
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want no file", file, err)
		}
	}
	// serve starts a broker, sees whether it has a session, and stops it.
	serve := func(want bool, sig syscall.Signal) error {
		t.Helper()
		p := process(t, addr, "", "-state", link)
		gone(real)
		c, present, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte("ann"),
			Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 3600)})
		must(err)
		defer c.nc.Close()
		if present != want {
			t.Errorf("session present: %v, want %v", present, want)
		}
		if sig == 0 { // it cannot write
			must(os.Rename(data, data+"2"))
			defer func() { must(os.Rename(data+"2", data)) }()
			sig = syscall.SIGTERM
		}
		must(p.Process.Signal(sig))
		return p.Wait()
	}
	must(os.Mkdir(data, 0o700))
	must(os.Symlink(filepath.Join("data", "real"), link))
	must(serve(false, syscall.SIGTERM))
	saved, err := os.ReadFile(real)
	must(err)
	if serve(true, 0) == nil {
		t.Error("the broker ends without an error although it could not write")
	}
	gone(real)
	old, err := os.ReadFile(real + ".old")
	must(err)
	if !bytes.Equal(old, saved) {
		t.Error("the state that was loaded is not in the other file")
	}
	_ = serve(false, syscall.SIGKILL) // not with a state of the past
	must(os.Rename(real+".old", real))
	must(serve(true, syscall.SIGTERM))
	gone(real + ".old")
	must(serve(true, syscall.SIGTERM))
	if to, err := os.Readlink(link); to != filepath.Join("data", "real") {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}
