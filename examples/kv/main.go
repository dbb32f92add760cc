// Command kv is a server that speaks the Redis protocol and keeps its keys in plain Go maps: a
// whole program to copy from when you want a store, cache, queue or gateway of your own behind a
// protocol that every language has clients for. README.md says what it can do and how it is built.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errOut, "kv: %v (-h lists all flags)\n", err)
		return 2
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: errOut, NoColor: !isTerminal(errOut), TimeFormat: time.TimeOnly}).
		Level(o.level).With().Timestamp().Logger()
	tuneGC(o)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newServer(o, log, cancel)
	if err := s.load(); err != nil {
		fmt.Fprintf(errOut, "kv: %v\n", err)
		return 1
	}
	if err := s.net.Start(ctx); err != nil {
		_ = s.close()
		return explain(err, o.addr, errOut)
	}
	fmt.Fprintf(out, "kv: listening on %s://%s\n", s.net.LocalAddr().Network(), s.net.LocalAddr())
	fmt.Fprintf(out, "kv: connect with: %s\n", redisCLI(s.net.LocalAddr()))
	return s.serve(ctx, out, errOut)
}

// serve waits until ctx is done and the server has ended.
func (s *server) serve(ctx context.Context, out, errOut io.Writer) int {
	ended := make(chan error, 1)
	go func() { ended <- s.net.Wait() }()
	var err error
	select {
	case err = <-ended: // without being asked
	case <-ctx.Done():
		fmt.Fprintf(out, "kv: draining %d connections; Ctrl-C again ends at once\n", s.net.Stats().Conns)
		err = <-ended
	}
	if err := errors.Join(err, s.close()); err != nil {
		fmt.Fprintf(errOut, "kv: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "kv: drained, bye")
	return 0
}

// explain says why the server could not start, and what to do about it.
func explain(err error, addr string, errOut io.Writer) int {
	var system *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		fmt.Fprintf(errOut, "kv: %s is in use: stop the program that listens there, or choose another address, "+
			"as with -addr tcp://127.0.0.1:6381\n", addr)
	case errors.As(err, &system):
		fmt.Fprintf(errOut, "kv: cannot listen: %v\n", system)
	default:
		fmt.Fprintf(errOut, "kv: invalid flags: %v\n", err)
		return 2
	}
	return 1
}

// redisCLI returns the command that connects to addr.
func redisCLI(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return "redis-cli -s " + addr.String()
	case tcp.IP.IsUnspecified():
		return fmt.Sprintf("redis-cli -p %d", tcp.Port)
	}
	return fmt.Sprintf("redis-cli -h %s -p %d", tcp.IP, tcp.Port)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// compile-time check: what a session is to the loop.
var _ loop.Handler = (*session)(nil)
