// Command proxy passes TCP connections on to backends, as one would configure HAProxy to do:
// round-robin or the least connections, health checks, PROXY protocol, half-closes, idle timeouts,
// TLS towards clients, a drain. What it serves is in server.go, the backends are in pool.go, and
// what one sees of it is in web.go.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/loop"
)

// statusInterval is how often the status lines come.
const statusInterval = 5 * time.Second

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		return cli.Refused("proxy", err, errOut)
	}
	log := cli.Log(errOut, zerolog.InfoLevel)
	p := newProxy(o, log)
	srv := p.server()
	if srv.TLS, err = o.certs.Config(); err != nil {
		fmt.Fprintf(errOut, "proxy: %v\n", err)
		return 2
	}
	web, err := listenWeb(o.metrics)
	if err != nil {
		return cli.CannotListen("proxy", "-metrics", err, o.metrics, "127.0.0.1:9091", errOut)
	}
	if err := srv.Start(ctx); err != nil {
		return cli.CannotStart("proxy", err, o.addr, "tcp://127.0.0.1:7001", errOut)
	}
	fmt.Fprintf(out, "proxy: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	p.serveWeb(ctx, srv, web, out)
	go p.status(ctx, srv)
	err = cli.Wait(ctx, srv.Wait, func() {
		fmt.Fprintf(out, "proxy: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
	})
	if err != nil {
		fmt.Fprintf(errOut, "proxy: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "proxy: drained, bye")
	return 0
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
