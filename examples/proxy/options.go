package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/examples/internal/cli"
)

// options are what the command line says.
type options struct {
	addr    string
	to      []string
	least   bool
	proxied bool
	idle    time.Duration
	connect time.Duration
	check   time.Duration
	drain   time.Duration
	loops   int
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	fs := cli.Flags("proxy")
	fs.StringVar(&o.addr, "addr", "tcp://127.0.0.1:7000", "listen on this `address`: tcp://host:port or unix://path")
	fs.Func("to", "pass connections on to these `backends`: host:port[,host:port...]", o.setTo)
	fs.Func("balance", "choose backends by `kind`: roundrobin or leastconn (default roundrobin)", o.setBalance)
	fs.BoolVar(&o.proxied, "send-proxy", false, "tell backends the client's address: PROXY protocol, version 2")
	fs.DurationVar(&o.idle, "idle", 10*time.Minute, "end a connection that is silent both ways for this `duration`; 0 means never")
	fs.DurationVar(&o.connect, "connect", 5*time.Second, "give a backend this `duration` to accept")
	fs.DurationVar(&o.check, "check", 2*time.Second, "look each `duration` whether backends accept; 0 means never")
	fs.DurationVar(&o.drain, "drain", 30*time.Second, "give connections this `duration` to end when the proxy is told to stop")
	fs.IntVar(&o.loops, "loops", 0, "run this `number` of event loops; 0 means as many as cores")
	err := cli.Parse(fs, args, "-to host:port[,host:port...] [flags]", out)
	switch {
	case err != nil:
		return o, err
	case len(o.to) == 0:
		return o, errors.New("no backends: say where to with -to host:port[,host:port...]")
	case o.idle < 0 || o.check < 0 || o.connect <= 0 || o.drain <= 0 || o.loops < 0:
		return o, errors.New("a negative duration or number, or -connect or -drain of 0")
	}
	return o, nil
}

func (o *options) setTo(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("want host:port: %w", err)
		}
		o.to = append(o.to, addr)
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
