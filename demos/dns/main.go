// Command dns is a caching DNS forwarder, on UDP and TCP: upstreams are asked with deadlines and
// tried one after the other, answers are cached by each loop until its wheel ends them, and what
// has expired is given when nobody upstream answers. The cache is in cache.go, what goes on in
// server.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/cli"
)

// options are what the command line says.
type options struct {
	addr       string
	upstreams  []string
	timeout    time.Duration
	retries    int
	cache      int
	cacheBytes int
	stale      time.Duration
	sessions   int
	loops      int
}

func main() { cli.Main(run) }

// run is the program: it serves until ctx is done, and returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	o, err := parse(args, out)
	if err != nil {
		return cli.Refused("dns", err, errOut)
	}
	log := cli.Log(errOut, zerolog.InfoLevel)
	if o.addr, err = fixPort(o.addr); err != nil {
		return cli.CannotStart("dns", err, o.addr, "udp://127.0.0.1:5301", errOut)
	}
	if err := o.resolve(ctx); err != nil {
		fmt.Fprintf(errOut, "dns: %v\n", err)
		return 1
	}
	srv := newServer(&o, log)
	if err := srv.Start(ctx); err != nil {
		return cli.CannotStart("dns", err, o.addr, "udp://127.0.0.1:5301", errOut)
	}
	fmt.Fprintf(out, "dns: listening on udp://%s and tcp://%s\n", srv.LocalAddr(), srv.LocalAddr())
	err = cli.Wait(ctx, srv.Wait, func() { fmt.Fprintln(out, "dns: draining; Ctrl-C again ends at once") })
	if err != nil {
		fmt.Fprintf(errOut, "dns: %v\n", err)
		return 1
	}
	fmt.Fprintln(out, "dns: drained, bye")
	return 0
}

// resolve gives upstreams that have names their addresses, once: questions are asked of addresses.
func (o *options) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for i, upstream := range o.upstreams {
		host, port, err := net.SplitHostPort(upstream)
		if err != nil {
			return err
		}
		if _, err := netip.ParseAddr(host); err == nil {
			continue
		}
		addrs, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return fmt.Errorf("upstream %s: %w", upstream, err)
		}
		o.upstreams[i] = net.JoinHostPort(addrs[0], port)
	}
	return nil
}

// fixPort takes a free port, in place of 0, for UDP and TCP.
func fixPort(addr string) (string, error) {
	hostPort := strings.TrimPrefix(addr, "udp://")
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || port != "0" {
		return addr, err
	}
	for range 100 {
		ln, err := net.Listen("tcp", hostPort)
		if err != nil {
			return addr, err
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		free := net.JoinHostPort(host, port)
		pc, err := net.ListenPacket("udp", free)
		_ = ln.Close()
		if err == nil {
			return "udp://" + free, pc.Close()
		}
	}
	return addr, errors.New("no port is free for UDP and TCP")
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	fs := cli.Flags("dns")
	fs.StringVar(&o.addr, "addr", "udp://127.0.0.1:5300", "listen on this `address`, udp://host:port, by UDP and TCP")
	fs.Func("upstream", "ask these `servers`: host:port[,host:port...]", o.setUpstreams)
	fs.DurationVar(&o.timeout, "timeout", time.Second, "give an upstream this `duration` to answer")
	fs.IntVar(&o.retries, "tries", 2, "ask each upstream this `number` of times")
	fs.IntVar(&o.cache, "cache", 100_000, "keep this `number` of answers on each loop")
	fs.IntVar(&o.cacheBytes, "cache-bytes", 64<<20, "keep answers of this `number` of bytes on each loop")
	fs.DurationVar(&o.stale, "stale", time.Hour, "keep answers this `duration` beyond their TTL, for when no upstream answers")
	fs.IntVar(&o.sessions, "clients", 0, "serve this `number` of UDP clients at once; 0 means 131,072")
	fs.IntVar(&o.loops, "loops", 0, "run this `number` of event loops; 0 means as many as cores")
	err := cli.Parse(fs, args, "-upstream host:port[,host:port...] [flags]", out)
	switch {
	case err != nil:
		return o, err
	case len(o.upstreams) == 0:
		return o, errors.New("no upstream: say whom to ask with -upstream host:port")
	}
	if err := cli.CheckAddr(o.addr, "udp"); err != nil {
		return o, fmt.Errorf("invalid value %q for flag -addr: %w", o.addr, err)
	}
	return o, o.checkNumbers()
}

func (o *options) checkNumbers() error {
	switch {
	case o.timeout <= 0:
		return fmt.Errorf("invalid value %q for flag -timeout: want more than 0", o.timeout)
	case o.retries < 1:
		return fmt.Errorf(`invalid value "%d" for flag -tries: want at least 1`, o.retries)
	case o.cache < 1:
		return fmt.Errorf(`invalid value "%d" for flag -cache: want at least 1`, o.cache)
	case o.cacheBytes < 1:
		return fmt.Errorf(`invalid value "%d" for flag -cache-bytes: want at least 1`, o.cacheBytes)
	case o.stale < 0:
		return fmt.Errorf("invalid value %q for flag -stale: it is negative; 0 means not at all", o.stale)
	case o.sessions < 0:
		return fmt.Errorf(`invalid value "%d" for flag -clients: it is negative; 0 means 131,072`, o.sessions)
	case o.loops < 0:
		return fmt.Errorf(`invalid value "%d" for flag -loops: it is negative; 0 means as many as cores`, o.loops)
	}
	return nil
}

func (o *options) setUpstreams(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		if err := cli.CheckHostPort(addr); err != nil {
			return err
		}
		o.upstreams = append(o.upstreams, addr)
	}
	return nil
}
