// Command proxy passes TCP connections on to backends: in turn, or to the one with the fewest
// connections, with health checks, the PROXY protocol, half-closes, idle timeouts and a drain. Read
// server.go (a client on its way to a backend), pool.go (the backends), header.go (the PROXY
// protocol) and main.go (flags and the process).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/handover"
)

// options are what the command line says.
type options struct {
	addr    string
	to      []string
	least   bool           // the backend with the fewest connections, and not the next one
	header  bool           // backends get a PROXY header
	trusted []netip.Prefix // whose connections begin with a PROXY header
	idle    time.Duration
	connect time.Duration
	check   time.Duration
	drain   time.Duration
	meet    string // the socket by which processes hand over
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(2)
	}
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	if err := run(ctx, o, log, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

// parse reads the command line. Help goes to out.
func parse(args []string, out io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("proxy", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller says what is wrong
	fs.StringVar(&o.addr, "addr", "tcp://127.0.0.1:7000", "listen on this `address`: tcp://host:port or unix://path")
	fs.Func("to", "pass connections on to these `backends`: host:port[,host:port...]", o.setTo)
	fs.BoolVar(&o.least, "least", false, "choose the backend with the fewest connections instead of the next one")
	fs.BoolVar(&o.header, "send-proxy", false, "tell backends the client's address: PROXY protocol, version 2")
	fs.Func("accept-proxy", "connections from these `networks` begin with a PROXY header: 10.0.0.0/8,::1/128", o.setTrusted)
	fs.DurationVar(&o.idle, "idle", 10*time.Minute, "close a connection that is silent in both directions for this `duration`; 0 means never")
	fs.DurationVar(&o.connect, "connect", 5*time.Second, "give a backend this `duration` to accept")
	fs.DurationVar(&o.check, "check", 2*time.Second, "check at this interval (`duration`) whether backends accept; 0 means never")
	fs.DurationVar(&o.drain, "drain", 30*time.Second, "at shutdown, close connections one by one over half of this `duration`, and cut those that are left at its end")
	fs.StringVar(&o.meet, "handover", "", "take over from the process with this unix `socket`, including its connections; SIGHUP starts the next process")
	err = fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(out)
		fs.Usage()
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.addr == "" || strings.HasPrefix(o.addr, "udp"):
		err = fmt.Errorf("-addr %q: want tcp://host:port or unix://path", o.addr)
	case len(o.to) == 0:
		err = errors.New("no backends: say where to with -to host:port[,host:port...]")
	case o.idle < 0:
		err = fmt.Errorf("-idle %v is negative", o.idle)
	case o.check < 0:
		err = fmt.Errorf("-check %v is negative", o.check)
	case o.connect <= 0:
		err = fmt.Errorf("-connect %v is not positive", o.connect)
	case o.drain <= 0:
		err = fmt.Errorf("-drain %v is not positive", o.drain)
	}
	return o, err
}

func (o *options) setTo(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		_, port, err := net.SplitHostPort(addr)
		if err != nil || port == "" {
			return fmt.Errorf("want host:port, not %q", addr)
		}
		if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
			return fmt.Errorf("%q has no port to connect to", addr)
		}
		o.to = append(o.to, addr)
	}
	return nil
}

func (o *options) setTrusted(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		network, err := netip.ParsePrefix(s)
		if err != nil {
			return err
		}
		o.trusted = append(o.trusted, network)
	}
	return nil
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, o options, log zerolog.Logger, out io.Writer) error {
	srv := newProxy(o, log).server()
	h, err := handover.Open(ctx, srv, handover.Config{Path: o.meet, Service: "proxy"})
	if err != nil {
		return fmt.Errorf("-handover %s: %w", o.meet, err)
	}
	defer h.Close()
	if o.meet != "" { // before Ready, after which a service manager may send that signal
		h.RestartOn(syscall.SIGHUP)
	}
	if _, err := h.Ready(ctx); err != nil {
		err = h.Run(ctx) // the same, when what has moved here has drained
		return fmt.Errorf("-addr %s: %w", o.addr, err)
	}
	fmt.Fprintf(out, "proxy: listening on %s://%s\n", srv.LocalAddr().Network(), srv.LocalAddr())
	said := make(chan struct{})
	unless := context.AfterFunc(ctx, func() {
		fmt.Fprintf(out, "proxy: draining %d connections; Ctrl-C again ends at once\n", srv.Stats().Conns)
		close(said)
	})
	err = h.Run(ctx)
	if !unless() {
		<-said
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "proxy: drained, bye")
	return nil
}
