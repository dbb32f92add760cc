// Package cli is the frame that the example programs share: flags, the log, signals and the end. A
// copy of one of them needs a copy of this.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// Main has run be the program: ctx is done at SIGINT or SIGTERM, and what run returns is the exit
// code. A second signal ends the program at once. Main does not return.
func Main(run func(ctx context.Context, args []string, out, errOut io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Flags returns an empty set of flags for Parse. Its errors are one line, without the list of all
// flags.
func Flags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// Parse reads the command line, which has flags only. Help, with usage after the program's name,
// goes to out; the error is flag.ErrHelp then.
func Parse(fs *flag.FlagSet, args []string, usage string, out io.Writer) error {
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, "Usage: %s %s\n", fs.Name(), usage)
		fs.SetOutput(out)
		fs.PrintDefaults()
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: flags only", fs.Arg(0))
	}
	return err
}

// Refused returns the exit code for an error of the command line, and says it, unless it is
// flag.ErrHelp.
func Refused(name string, err error, errOut io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(errOut, "%s: %v (-h lists all flags)\n", name, err)
	return 2
}

// CheckAddr reports what is wrong with an address to listen on, scheme://host:port or unix://path, of
// one of these schemes; tcp stands for tcp4 and tcp6, too. Whether this machine has it is known
// when one listens.
func CheckAddr(addr string, schemes ...string) error {
	scheme, rest, ok := strings.Cut(addr, "://")
	switch {
	case !ok || !slices.Contains(schemes, scheme) && !(slices.Contains(schemes, "tcp") && (scheme == "tcp4" || scheme == "tcp6")):
		return errors.New("want " + wanted(schemes))
	case scheme == "unix" && rest == "":
		return errors.New("want unix://path")
	case scheme == "unix":
		return nil
	}
	return CheckHostPort(rest)
}

// wanted is what addresses of these schemes look like.
func wanted(schemes []string) string {
	var forms []string
	for _, s := range schemes {
		if s == "unix" {
			forms = append(forms, "unix://path")
		} else {
			forms = append(forms, s+"://host:port")
		}
	}
	return strings.Join(forms, " or ")
}

// CheckHostPort reports what is wrong with host:port. Names of hosts are not looked up.
func CheckHostPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("want host:port: %w", err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return fmt.Errorf("want host:port: %q is no port", port)
	}
	return nil
}

// LevelFlag adds -log to fs, which sets level.
func LevelFlag(fs *flag.FlagSet, level *zerolog.Level) {
	*level = zerolog.InfoLevel
	fs.Func("log", "log from this `level` on: debug, info, warn, error or off (default info)", func(s string) error {
		switch s {
		case "debug", "info", "warn", "error":
			*level, _ = zerolog.ParseLevel(s)
		case "off":
			*level = zerolog.Disabled
		default:
			return errors.New("want debug, info, warn, error or off")
		}
		return nil
	})
}

// Log returns a log for people, in colours if errOut is a terminal.
func Log(errOut io.Writer, level zerolog.Level) zerolog.Logger {
	console := zerolog.ConsoleWriter{Out: errOut, NoColor: !isTerminal(errOut), TimeFormat: time.TimeOnly}
	return zerolog.New(console).Level(level).With().Timestamp().Logger()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Wait returns what wait does, which returns when a server has ended. draining is called if it is
// asked to, which is when ctx is done.
func Wait(ctx context.Context, wait func() error, draining func()) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended: // without being asked
		return err
	case <-ctx.Done():
		draining()
		return <-ended
	}
}

// CannotStart returns the exit code for an error of loop.Server.Start, or of what else listens on
// the address of -addr, and says what to do about it. other is an address to try instead of addr.
func CannotStart(name string, err error, addr, other string, errOut io.Writer) int {
	return CannotListen(name, "-addr", err, addr, other, errOut)
}

// CannotListen is CannotStart for the address of another flag.
func CannotListen(name, flag string, err error, addr, other string, errOut io.Writer) int {
	var system *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		fmt.Fprintf(errOut, "%s: %s is in use: stop the program that listens there, or choose another address, "+
			"as with %s %s\n", name, addr, flag, other)
	case errors.As(err, &system):
		what := ""
		if flag != "-addr" {
			what = " for " + flag
		}
		fmt.Fprintf(errOut, "%s: cannot listen%s: %v\n", name, what, system)
	default:
		fmt.Fprintf(errOut, "%s: invalid flags: %v\n", name, err)
		return 2
	}
	return 1
}
