package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/internal/certs"
	"github.com/loopwheel/loopwheel/internal/cli"
)

// options are what the command line says.
type options struct {
	addr    string
	to      []string
	least   bool
	proxied bool
	trusted []netip.Prefix // whose connections begin with a PROXY header; nil: nobody's
	idle    time.Duration
	connect time.Duration
	check   time.Duration
	drain   time.Duration
	loops   int
	metrics string
	certs   certs.Flags
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	fs := cli.Flags("proxy")
	fs.StringVar(&o.addr, "addr", "tcp://127.0.0.1:7000", "listen on this `address`: tcp://host:port or unix://path")
	fs.Func("to", "pass connections on to these `backends`: host:port[,host:port...]", o.setTo)
	fs.Func("balance", "choose backends by `kind`: roundrobin or leastconn (default roundrobin)", o.setBalance)
	fs.BoolVar(&o.proxied, "send-proxy", false, "tell backends the client's address: PROXY protocol, version 2")
	fs.BoolFunc("accept-proxy", "clients say who they speak for: PROXY protocol, version 1 or 2; all of them, or as -accept-proxy=10.0.0.0/8,::1 "+
		"those of `networks`, and others may not; at a unix:// address it is always all", o.setTrusted)
	fs.DurationVar(&o.idle, "idle", 10*time.Minute, "end a connection that is silent both ways for this `duration`; 0 means never")
	fs.DurationVar(&o.connect, "connect", 5*time.Second, "give a backend this `duration` to accept")
	fs.DurationVar(&o.check, "check", 2*time.Second, "look each `duration` whether backends accept; 0 means never")
	fs.DurationVar(&o.drain, "drain", 30*time.Second, "give connections this `duration` to end when the proxy is told to stop")
	fs.IntVar(&o.loops, "loops", 0, "run this `number` of event loops; 0 means as many as cores")
	fs.StringVar(&o.metrics, "metrics", "", "serve a live page, Prometheus metrics and the backends' numbers on this `address`, such as 127.0.0.1:9090; it is for you, not for your users")
	o.certs.Register(fs)
	err := cli.Parse(fs, args, "-to host:port[,host:port...] [flags]", out)
	switch {
	case err != nil:
		return o, err
	case len(o.to) == 0:
		return o, errors.New("no backends: say where to with -to host:port[,host:port...]")
	case o.loops < 0:
		return o, fmt.Errorf(`invalid value "%d" for flag -loops: it is negative; 0 means as many as cores`, o.loops)
	}
	if err := o.checkAddrs(); err != nil {
		return o, err
	}
	return o, o.checkDurations()
}

func (o *options) checkAddrs() error {
	if err := cli.CheckAddr(o.addr, "tcp", "unix"); err != nil {
		return fmt.Errorf("invalid value %q for flag -addr: %w", o.addr, err)
	}
	if err := cli.CheckHostPort(o.metrics); err != nil && o.metrics != "" {
		return fmt.Errorf("invalid value %q for flag -metrics: %w", o.metrics, err)
	}
	return nil
}

func (o *options) checkDurations() error {
	switch {
	case o.idle < 0:
		return fmt.Errorf("invalid value %q for flag -idle: it is negative; 0 means never", o.idle)
	case o.check < 0:
		return fmt.Errorf("invalid value %q for flag -check: it is negative; 0 means never", o.check)
	case o.connect <= 0:
		return fmt.Errorf("invalid value %q for flag -connect: want more than 0", o.connect)
	case o.drain <= 0:
		return fmt.Errorf("invalid value %q for flag -drain: want more than 0", o.drain)
	}
	return nil
}

func (o *options) setTo(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		if err := cli.CheckHostPort(addr); err != nil {
			return err
		}
		o.to = append(o.to, addr)
	}
	return nil
}

// setTrusted reads a list of networks and addresses, or the true or false of a flag without one.
func (o *options) setTrusted(list string) error {
	o.trusted = nil
	switch list {
	case "false":
		return nil
	case "true":
		list = "0.0.0.0/0,::/0"
	}
	for s := range strings.SplitSeq(list, ",") {
		network, err := netip.ParsePrefix(s)
		if addr, err2 := netip.ParseAddr(s); err2 == nil {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return errors.New("want networks or addresses: 10.0.0.0/8,::1")
		}
		o.trusted = append(o.trusted, network)
	}
	return nil
}

func (o *options) setBalance(kind string) error {
	switch kind {
	case "roundrobin":
	case "leastconn":
		o.least = true
	default:
		return errors.New("want roundrobin or leastconn")
	}
	return nil
}
