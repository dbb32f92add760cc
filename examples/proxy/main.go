// Command proxy passes TCP connections on to backends, as one would configure HAProxy to do:
// round-robin or the least connections, health checks, PROXY protocol, half-closes, idle timeouts,
// a drain. What it serves is in server.go, and the backends are in pool.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// statusInterval is how often the status lines come.
const statusInterval = 5 * time.Second

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
		fmt.Fprintf(errOut, "proxy: %v (-h lists all flags)\n", err)
		return 2
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: errOut, NoColor: !isTerminal(errOut), TimeFormat: time.TimeOnly}).
		Level(zerolog.InfoLevel).With().Timestamp().Logger()
	p := newProxy(o, log)
	srv := p.server()
	if err := srv.Start(ctx); err != nil {
		fmt.Fprintf(errOut, "proxy: cannot start: %v\n", err)
		return 1
	}
	fmt.Fprintf(out, "proxy: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	go p.status(ctx, srv)
	if err := wait(ctx, srv, out); err != nil {
		fmt.Fprintf(errOut, "proxy: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "proxy: drained, bye")
	return 0
}

// wait returns when the server has ended.
func wait(ctx context.Context, srv *loop.Server, out io.Writer) error {
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait() }()
	select {
	case err := <-ended: // without being asked
		return err
	case <-ctx.Done():
		fmt.Fprintf(out, "proxy: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
		return <-ended
	}
}

// status logs how the backends are doing, until ctx is done.
func (p *proxy) status(ctx context.Context, srv *loop.Server) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, b := range p.backends {
			p.log.Info().Str("backend", b.addr).Bool("up", b.up.Load()).Int64("conns", b.conns.Load()).
				Uint64("total", b.total.Load()).Uint64("failed", b.failed.Load()).
				Uint64("in", b.in.Load()).Uint64("out", b.out.Load()).Msg("status")
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
