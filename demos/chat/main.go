// Command chat is a chat server: rooms that all processes on one Redis share, a web page and its
// WebSocket on one port, and lines of text on another.
//
//	go run -C demos ./chat
//
// Then open the address that it prints in a browser, or talk to it with nc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

func main() {
	var opt options
	opt.register(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chat: there are arguments besides the flags: %q\n", flag.Args())
		os.Exit(2)
	}
	opt.logger = zerolog.New(os.Stderr).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, opt, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	web, lines string
	redis      string
	also       []string // addresses of other servers of the same chat, for pages
	origins    []string
	cert, key  string // files; "" means no TLS
	metrics    string // address of the live page; "" means none
	idle, ping time.Duration
	rate       float64
	rooms      int // in Redis at most
	keep       time.Duration
	history    int
	lease      time.Duration // how long presence outlives a process
	loops      int
	logger     zerolog.Logger
}

func (o *options) register(fs *flag.FlagSet) {
	list := func(to *[]string) func(string) error {
		return func(s string) error { *to = strings.Split(s, ","); return nil }
	}
	fs.StringVar(&o.web, "addr", "tcp://127.0.0.1:8080", "serve the page and its WebSocket on this `address`, tcp://host:port")
	fs.StringVar(&o.lines, "lines", "tcp://127.0.0.1:7000", "serve lines on this `address`, tcp://host:port")
	fs.StringVar(&o.redis, "redis", "", "Redis `server`, or some of a cluster, separated by commas; empty: one in this process")
	fs.Func("also", "other `servers` of the same chat, separated by commas, that pages switch to when they lose this one, as http://HOST:PORT", list(&o.also))
	fs.Func("origins", "`origins`, separated by commas, whose pages may connect besides our own", list(&o.origins))
	fs.StringVar(&o.cert, "tls-cert", "", "speak TLS with the certificate in this `file` (PEM)")
	fs.StringVar(&o.key, "tls-key", "", "and its key in this `file` (PEM)")
	fs.StringVar(&o.metrics, "metrics", "", "serve Prometheus metrics and a live page on this `address`, such as 127.0.0.1:9090, for you and not for your users")
	fs.DurationVar(&o.idle, "idle", 10*time.Minute, "send away users who are silent for this `duration`")
	fs.DurationVar(&o.ping, "ping", 15*time.Second, "ping browsers that are silent for this `duration`")
	fs.Float64Var(&o.rate, "rate", 5, "`messages` per second that a user may send on average")
	fs.IntVar(&o.rooms, "rooms", 1000, "have this `number` of rooms at most")
	fs.DurationVar(&o.keep, "keep", 24*time.Hour, "forget a room, and what was said in it, after it was empty for this `duration`")
	fs.IntVar(&o.history, "history", 50, "show this `number` of messages to users who enter a room")
	fs.DurationVar(&o.lease, "lease", 10*time.Second, "keep the users of a server that has died for this `duration`")
	fs.IntVar(&o.loops, "loops", 0, "run this `number` of event loops; 0 means GOMAXPROCS - 1")
}

// check looks at what would do harm later. The addresses are checked by who listens on them.
func (o *options) check() error {
	switch {
	case o.web == "" || o.lines == "":
		return errors.New("-addr and -lines must not be empty")
	case o.idle <= 0 || o.ping <= 0 || !(o.rate > 0):
		return errors.New("-idle, -ping and -rate must be positive")
	case o.rooms < 1 || o.history < 0:
		return errors.New("-rooms must be positive, and -history not negative")
	case o.keep < o.idle || o.keep < time.Second:
		return errors.New("-keep must be at least -idle, and a second: a room with somebody in it is kept")
	case o.redis != "" && slices.Contains(strings.Split(o.redis, ","), ""):
		return fmt.Errorf("-redis %q has an empty address", o.redis)
	case (o.cert == "") != (o.key == ""):
		return errors.New("-tls-cert and -tls-key go together")
	}
	for name, list := range map[string][]string{"also": o.also, "origins": o.origins} {
		for _, s := range list {
			if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" {
				return fmt.Errorf("-%s %s: want http://HOST:PORT or https://HOST:PORT", name, s)
			}
		}
	}
	return nil
}

// run serves until ctx is done and all connections have been drained.
func run(ctx context.Context, opt options, out io.Writer) error {
	if err := opt.check(); err != nil {
		return err
	}
	client, closeRedis, err := connect(opt.redis, out)
	if err != nil {
		return err
	}
	defer closeRedis()
	ch, err := openChat(ctx, client, opt)
	if err != nil {
		return fmt.Errorf("-redis %s: %w", opt.redis, err)
	}
	srv, err := ch.newServer()
	if err == nil {
		err = ch.serve(ctx, srv, out)
	}
	return errors.Join(err, ch.close())
}

// serve runs the server, and says where it is.
func (ch *chat) serve(ctx context.Context, srv *loop.Server, out io.Writer) error {
	if ch.opt.metrics != "" {
		page, err := loopmetrics.NewHandler(srv)
		if err != nil {
			return err
		}
		ln, err := net.Listen("tcp", ch.opt.metrics)
		if err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
		live := &http.Server{Handler: page, ReadTimeout: 5 * time.Second}
		go func() { _ = live.Serve(ln) }()
		defer live.Close()
		fmt.Fprintf(out, "live page: http://%s/, metrics: http://%[1]s/metrics\n", ln.Addr())
	}
	if err := srv.Start(ctx); err != nil {
		return fmt.Errorf("with -addr %s, -lines %s and -loops %d: %w", ch.opt.web, ch.opt.lines, ch.opt.loops, err)
	}
	scheme, say := "http", "nc"
	if srv.TLS != nil {
		scheme, say = "https", "openssl s_client -quiet"
	}
	host, port, _ := net.SplitHostPort(srv.Addrs()[1].String())
	fmt.Fprintf(out, "page:  %s://%s/\nlines: %s %s %s\n", scheme, srv.Addrs()[0], say, host, port)
	return srv.Wait()
}

// connect returns a client of the Redis at addrs. If there are none, it starts one in this process.
func connect(addrs string, out io.Writer) (client redis.UniversalClient, end func(), err error) {
	endRedis := func() {}
	if addrs == "" {
		m, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		stop := make(chan struct{})
		endRedis = func() { close(stop); m.Close() }
		go age(m, stop)
		addrs = m.Addr()
		fmt.Fprintln(out, "redis: in this process; its data is lost at exit")
	}
	client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addrs, ","), ContextTimeoutEnabled: true})
	return client, func() { _ = client.Close(); endRedis() }, nil
}

// age lets the time of keys that expire pass, which miniredis does not do by itself.
func age(m *miniredis.Miniredis, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			m.FastForward(time.Second)
		}
	}
}
