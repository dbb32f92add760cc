// Command chat is a chat server: lines on one port, a web page and its WebSocket on another, and
// one set of rooms for both.
//
//	go run ./examples/chat
//
// Then open the address that it prints in a browser, or talk to it with nc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

func main() {
	var opt options
	var origins, level, also string
	flag.StringVar(&opt.web, "addr", "tcp://127.0.0.1:8080", "where to serve the page and WebSocket")
	flag.StringVar(&opt.lines, "lines", "tcp://127.0.0.1:7000", "where to serve lines")
	flag.DurationVar(&opt.idle, "idle", 10*time.Minute, "kick who says nothing for this long")
	flag.DurationVar(&opt.ping, "ping", 15*time.Second, "ping browsers that are silent for this long")
	flag.Float64Var(&opt.rate, "rate", 5, "messages per second that one may send in the long run")
	flag.IntVar(&opt.history, "history", 50, "messages that a room remembers")
	flag.IntVar(&opt.loops, "loops", 0, "event loops (0: one per CPU)")
	flag.StringVar(&origins, "origins", "", "origins, separated by commas, whose pages may connect besides our own")
	flag.StringVar(&opt.metrics, "metrics", "", "serve Prometheus metrics and a live page on this `address`, such as 127.0.0.1:9090, for you and not for your users")
	flag.StringVar(&opt.redis, "redis", "", "Redis server, or some of a cluster, separated by commas: all processes on it are one chat; embedded starts one, for trying")
	flag.StringVar(&also, "also", "", "other servers of the same chat, separated by commas, that pages turn to when they lose this one, as http://HOST:PORT")
	flag.DurationVar(&opt.lease, "lease", 10*time.Second, "with -redis: who was connected to a server that has died is gone after this long")
	opt.certs.Register(flag.CommandLine)
	flag.StringVar(&level, "log", "info", "log level")
	flag.Parse()
	if origins != "" {
		opt.origins = strings.Split(origins, ",")
	}
	if also != "" {
		opt.also = strings.Split(also, ",")
	}
	if err := run(opt, level); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

// run serves until SIGINT or SIGTERM, then drains.
func run(opt options, level string) error {
	lvl, err := zerolog.ParseLevel(level)
	if err != nil {
		return err
	}
	if err := opt.check(); err != nil {
		return err
	}
	console := zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: !isatty.IsTerminal(os.Stderr.Fd())}
	opt.logger = zerolog.New(console).Level(lvl).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv, end, err := build(ctx, opt)
	if err != nil {
		return err
	}
	if err := srv.Start(ctx); err != nil {
		return errors.Join(err, end())
	}
	fmt.Print(welcome(srv))
	if err := serveMetrics(srv, opt.metrics); err != nil {
		return errors.Join(err, end())
	}
	over := make(chan error, 1)
	go func() { over <- srv.Wait() }()
	select {
	case err = <-over: // without being asked
	case <-ctx.Done():
		stop() // a second signal ends it at once
		fmt.Fprintf(os.Stderr, "chat: going down: %d connections are told goodbye\n", srv.Stats().Conns)
		err = <-over
	}
	return errors.Join(err, end())
}

// welcome says how to reach the server.
func welcome(srv *loop.Server) string {
	page, lines := srv.Addrs()[0], srv.Addrs()[1].String()
	if srv.TLS != nil {
		return fmt.Sprintf("page:  https://%s/\nlines: openssl s_client -quiet -connect %s\n", page, lines)
	}
	host, port, _ := net.SplitHostPort(lines)
	return fmt.Sprintf("page:  http://%s/\nlines: nc %s %s\n", page, host, port)
}

// serveMetrics serves what there is to see of srv on addr, if there is one.
func serveMetrics(srv *loop.Server, addr string) error {
	if addr == "" {
		return nil
	}
	web, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("-metrics: %w", err)
	}
	go func() { _ = http.Serve(web, loopmetrics.NewHandler(srv)) }()
	fmt.Printf("live page: http://%s/, metrics: http://%s/metrics\n", web.Addr(), web.Addr())
	return nil
}

// build puts the server together, on Redis if that is wanted. end must be called when the server
// has ended.
func build(ctx context.Context, opt options) (srv *loop.Server, end func() error, err error) {
	ch := newChat(opt)
	if opt.redis == "" {
		return ch.serve(newLocalHouse(ch)), func() error { return nil }, nil
	}
	addrs := strings.Split(opt.redis, ",")
	if opt.redis == "embedded" {
		m, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		addrs = []string{m.Addr()}
		fmt.Printf("redis: %s (of this process: it keeps nothing)\n", m.Addr())
	}
	h, err := openHouse(ctx, ch, addrs)
	if err != nil {
		return nil, nil, err
	}
	return ch.serve(h), h.close, nil
}
