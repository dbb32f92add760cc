// Command chat is a chat server: lines on one port, a web page and its WebSocket on another, and one set of rooms for both.
//
//	go run ./examples/chat
//
// Then open the address that it prints in a browser, or talk to it with nc.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

func main() {
	var opt options
	var origins, level string
	flag.StringVar(&opt.web, "addr", "tcp://127.0.0.1:8080", "where to serve the page and WebSocket")
	flag.StringVar(&opt.lines, "lines", "tcp://127.0.0.1:7000", "where to serve lines")
	flag.DurationVar(&opt.idle, "idle", 10*time.Minute, "kick who says nothing for this long")
	flag.DurationVar(&opt.ping, "ping", 15*time.Second, "ping browsers that are silent for this long")
	flag.Float64Var(&opt.rate, "rate", 5, "messages per second that one may send in the long run")
	flag.IntVar(&opt.history, "history", 50, "messages that a room remembers")
	flag.IntVar(&opt.loops, "loops", 0, "event loops (0: one per CPU)")
	flag.StringVar(&origins, "origins", "", "origins, separated by commas, whose pages may connect besides our own")
	flag.StringVar(&opt.metrics, "metrics", "", "serve Prometheus metrics and a live page on this `address`, such as 127.0.0.1:9090, for you and not for your users")
	flag.StringVar(&level, "log", "info", "log level")
	flag.Parse()
	if origins != "" {
		opt.origins = strings.Split(origins, ",")
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
	opt.logger = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly}).Level(lvl).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv := newServer(opt)
	if err := srv.Start(ctx); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(srv.Addrs()[1].String())
	fmt.Printf("page:  http://%s/\nlines: nc %s %s\n", srv.Addrs()[0], host, port)
	if opt.metrics != "" {
		web, err := net.Listen("tcp", opt.metrics)
		if err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
		go func() { _ = http.Serve(web, loopmetrics.NewHandler(srv)) }()
		fmt.Printf("live page: http://%s/, metrics: http://%s/metrics\n", web.Addr(), web.Addr())
	}
	return srv.Wait()
}
