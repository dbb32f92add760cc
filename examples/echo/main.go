// Command echo sends back what it gets, evicts who is silent for too long, and drains when it is
// told to stop: the program to start from when you write a server of your own. What it serves is in
// server.go.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// statusInterval is how often the status line comes.
const statusInterval = 5 * time.Second

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		return cli.Refused("echo", err, errOut)
	}
	log := cli.Log(errOut, o.level)
	restart, err := newRestarter(o.pid)
	if err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	web, err := listenMetrics(restart, o.metrics)
	if err != nil {
		return cli.CannotListen("echo", "-metrics", err, o.metrics, "127.0.0.1:9091", errOut)
	}
	srv := newServer(o, log)
	if srv.TLS, err = o.certs.Config(); err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 2
	}
	if srv.AcceptFrom, err = restart.listen(o.addr); err != nil {
		return cli.CannotStart("echo", err, o.addr, "tcp://127.0.0.1:7001", errOut)
	}
	if srv.AcceptFrom != nil {
		srv.Addr = ""
	}
	ctx = restart.watch(ctx, log)
	if err := srv.Start(ctx); err != nil {
		return cli.CannotStart("echo", err, o.addr, "tcp://127.0.0.1:7001", errOut)
	}
	fmt.Fprintf(out, "echo: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	fmt.Fprintf(out, "echo: connect with: %s\n", connectWith(srv))
	serveMetrics(ctx, srv, web, out)
	if err := restart.Ready(); err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	go status(ctx, srv, log)
	err = cli.Wait(ctx, srv.Wait, func() {
		fmt.Fprintf(out, "echo: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
	})
	if err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "echo: drained, bye")
	return 0
}

// listenMetrics returns nil if there is no address.
func listenMetrics(r *restarter, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	return r.listen("tcp://" + addr)
}

// serveMetrics shows the server on ln, unless that is nil, until ctx is done.
func serveMetrics(ctx context.Context, srv *loop.Server, ln net.Listener, out io.Writer) {
	if ln == nil {
		return
	}
	web := &http.Server{Handler: loopmetrics.NewHandler(srv), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	go func() { _ = web.Serve(ln) }()
	fmt.Fprintf(out, "echo: live page on http://%s/, metrics on http://%s/metrics\n", ln.Addr(), ln.Addr())
}

// connectWith returns the command that connects to the server.
func connectWith(srv *loop.Server) string {
	if srv.TLS == nil {
		return netcat(srv.LocalAddr())
	}
	if srv.LocalAddr().Network() == "unix" {
		return "openssl s_client -unix " + srv.LocalAddr().String()
	}
	return "openssl s_client -connect " + srv.LocalAddr().String()
}

// netcat returns the command that connects to addr.
func netcat(addr net.Addr) string {
	if udp, ok := addr.(*net.UDPAddr); ok {
		return fmt.Sprintf("nc -u %s %d", udp.IP, udp.Port)
	}
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok:
		return "nc -U " + addr.String()
	case tcp.IP.IsUnspecified():
		return fmt.Sprintf("nc localhost %d", tcp.Port)
	}
	return fmt.Sprintf("nc %s %d", tcp.IP, tcp.Port)
}

// status logs how the server is doing when that has changed, until ctx is done.
func status(ctx context.Context, srv *loop.Server, log zerolog.Logger) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	var before loop.Stats // a server starts at zero
	var shown statusLine
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := srv.Stats()
		line := statusLine{now.Conns, now.Messages - before.Messages, now.Evicted, now.Timers}
		if before = now; line != shown {
			shown = line
			line.log(log)
		}
	}
}

// A statusLine says how the server is doing.
type statusLine struct {
	conns    int
	messages uint64 // in the last interval
	evicted  uint64
	timers   int
}

func (s statusLine) log(log zerolog.Logger) {
	log.Info().
		Int("conns", s.conns).
		Float64("msg/s", float64(s.messages)/statusInterval.Seconds()).
		Uint64("evicted", s.evicted).
		Int("timers", s.timers).
		Msg("status")
}
