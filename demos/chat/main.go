// Command chat is a chat server: lines on one port, a web page and its WebSocket on another, and
// one set of rooms for both.
//
//	go run -C demos ./chat
//
// Then open the address that it prints in a browser, or talk to it with nc.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/loopwheel/loopwheel/internal/cli"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, then drains, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	opt, err := parse(args, out)
	if err != nil {
		return cli.Refused("chat", err, errOut)
	}
	opt.logger = cli.Log(errOut, opt.level)
	web, err := listenMetrics(opt.metrics)
	if err != nil {
		return cli.CannotListen("chat", "-metrics", err, opt.metrics, "127.0.0.1:9091", errOut)
	}
	srv, end, err := build(ctx, opt, out)
	if err != nil {
		fmt.Fprintf(errOut, "chat: %v\n", err)
		return 1
	}
	if err := srv.Start(ctx); err != nil {
		_ = end()
		return cannotStart(err, opt, errOut)
	}
	fmt.Fprint(out, welcome(srv))
	serveMetrics(srv, web, out)
	err = cli.Wait(ctx, srv.Wait, func() {
		fmt.Fprintf(errOut, "chat: going down: %d connections are told goodbye\n", srv.Stats().Conns)
	})
	if err = errors.Join(err, end()); err != nil {
		fmt.Fprintf(errOut, "chat: %v\n", err)
		return 1
	}
	return 0
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (opt options, err error) {
	fs := cli.Flags("chat")
	fs.StringVar(&opt.web, "addr", "tcp://127.0.0.1:8080", "serve the page and WebSocket on this `address`, tcp://host:port")
	fs.StringVar(&opt.lines, "lines", "tcp://127.0.0.1:7000", "serve lines on this `address`, tcp://host:port")
	fs.DurationVar(&opt.idle, "idle", 10*time.Minute, "kick who says nothing for this `duration`")
	fs.DurationVar(&opt.ping, "ping", 15*time.Second, "ping browsers that are silent for this `duration`")
	fs.Float64Var(&opt.rate, "rate", 5, "`messages` per second that one may send in the long run")
	fs.IntVar(&opt.history, "history", 50, "a room remembers this `number` of messages")
	fs.IntVar(&opt.loops, "loops", 0, "run this `number` of event loops; 0 means as many as cores")
	fs.Func("origins", "`origins`, separated by commas, whose pages may connect besides our own", list(&opt.origins))
	fs.StringVar(&opt.metrics, "metrics", "", "serve Prometheus metrics and a live page on this `address`, such as 127.0.0.1:9090, for you and not for your users")
	fs.StringVar(&opt.redis, "redis", "", "Redis `server`, or some of a cluster, separated by commas: all processes on it are one chat; embedded starts one, for trying")
	fs.Func("also", "other `servers` of the same chat, separated by commas, that pages turn to when they lose this one, as http://HOST:PORT", list(&opt.also))
	fs.DurationVar(&opt.lease, "lease", 10*time.Second, "with -redis: who was connected to a server that has died is gone after this `duration`")
	opt.certs.Register(fs)
	cli.LevelFlag(fs, &opt.level)
	if err := cli.Parse(fs, args, "[flags]", out); err != nil {
		return opt, err
	}
	return opt, opt.check()
}

// list is a flag of values with commas between them.
func list(to *[]string) func(string) error {
	return func(s string) error {
		*to = strings.Split(s, ",")
		return nil
	}
}

// cannotStart says why the server does not start, and returns the exit code.
func cannotStart(err error, opt options, errOut io.Writer) int {
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Addr != nil && isAddr(opt.lines, op.Addr) {
		return cli.CannotListen("chat", "-lines", err, opt.lines, "tcp://127.0.0.1:7001", errOut)
	}
	return cli.CannotStart("chat", err, opt.web, "tcp://127.0.0.1:8081", errOut)
}

// isAddr reports whether addr, tcp://host:port, means at.
func isAddr(addr string, at net.Addr) bool {
	scheme, host, _ := strings.Cut(addr, "://")
	want, err := net.ResolveTCPAddr(scheme, host)
	if err != nil {
		return false
	}
	got, err := net.ResolveTCPAddr("tcp", at.String())
	anyHost := func(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }
	return err == nil && want.Port == got.Port && (want.IP.Equal(got.IP) || anyHost(want.IP) && anyHost(got.IP))
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

// listenMetrics listens on the address of -metrics, if there is one.
func listenMetrics(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	return net.Listen("tcp", addr)
}

// serveMetrics serves what there is to see of srv, if somebody wants to.
func serveMetrics(srv *loop.Server, web net.Listener, out io.Writer) {
	if web == nil {
		return
	}
	page := &http.Server{Handler: loopmetrics.NewHandler(srv), ReadTimeout: 5 * time.Second}
	go func() { _ = page.Serve(web) }()
	fmt.Fprintf(out, "live page: http://%s/, metrics: http://%s/metrics\n", web.Addr(), web.Addr())
}

// build puts the server together, on Redis if that is wanted. end must be called when the server
// has ended.
func build(ctx context.Context, opt options, out io.Writer) (srv *loop.Server, end func() error, err error) {
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
		fmt.Fprintf(out, "redis: %s (of this process: it keeps nothing)\n", m.Addr())
	}
	h, err := openHouse(ctx, ch, addrs)
	if err != nil {
		return nil, nil, err
	}
	return ch.serve(h), h.close, nil
}
