// Command echo sends back what it gets, evicts who is silent for too long, and drains when it is
// told to stop: the program to start from when you write a server of your own. What it serves is in
// server.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// statusInterval is how often the status line comes.
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
		fmt.Fprintf(errOut, "echo: %v (-h lists all flags)\n", err)
		return 2
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: errOut, NoColor: !isTerminal(errOut), TimeFormat: time.TimeOnly}).
		Level(o.level).With().Timestamp().Logger()
	restart, err := newRestarter(o.pid)
	if err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	web, err := listenMetrics(restart, o.metrics)
	if err != nil {
		fmt.Fprintf(errOut, "echo: -metrics %s: %v\n", o.metrics, err)
		return 1
	}
	srv := newServer(o, log)
	if srv.TLS, err = o.tlsConfig(); err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 2
	}
	if srv.Listener, err = restart.listen(o.addr); err != nil {
		return explain(err, o.addr, errOut)
	}
	if srv.Listener != nil {
		srv.Addr = ""
	}
	ctx = restart.watch(ctx, log)
	if err := srv.Start(ctx); err != nil {
		return explain(err, o.addr, errOut)
	}
	fmt.Fprintf(out, "echo: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	fmt.Fprintf(out, "echo: connect with: %s\n", connectWith(srv))
	serveMetrics(ctx, srv, web, out)
	if err := restart.Ready(); err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	go status(ctx, srv, log)
	if err := wait(ctx, srv, out); err != nil {
		fmt.Fprintf(errOut, "echo: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "echo: drained, bye")
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
		fmt.Fprintf(out, "echo: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
		return <-ended
	}
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

// explain says why the server could not start, and what to do about it.
func explain(err error, addr string, errOut io.Writer) int {
	var system *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		fmt.Fprintf(errOut, "echo: %s is in use: stop the program that listens there, or choose another address, "+
			"as with -addr tcp://127.0.0.1:7001\n", addr)
	case errors.As(err, &system):
		fmt.Fprintf(errOut, "echo: cannot listen: %v\n", system)
	default:
		fmt.Fprintf(errOut, "echo: invalid flags: %v\n", err)
		return 2
	}
	return 1
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

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
