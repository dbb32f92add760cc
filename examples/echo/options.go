package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/certs"
	"github.com/loopwheel/loopwheel/internal/cli"
)

// options are what the command line says.
type options struct {
	addr    string
	metrics string
	idle    time.Duration
	loops   int
	codec   codec.Codec
	level   zerolog.Level

	certs certs.Flags
	delay time.Duration
	pid   string
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	o := options{codec: codec.Lines{}}
	fs := cli.Flags("echo")
	fs.StringVar(&o.addr, "addr", "tcp://127.0.0.1:7000", "listen on this `address`: tcp://host:port or unix://path")
	fs.DurationVar(&o.idle, "idle", time.Minute, "evict a connection that is silent for this `duration`; 0 means never")
	fs.StringVar(&o.metrics, "metrics", "", "serve Prometheus metrics and a live page on this `address`, such as 127.0.0.1:9090; it is for you, not for your users")
	fs.IntVar(&o.loops, "loops", 0, "run this `number` of event loops; 0 means one for each core")
	o.certs.Register(fs)
	fs.DurationVar(&o.delay, "drain-delay", time.Second, "serve connections on for this `duration` when the program stops, or another takes over (SIGHUP)")
	fs.StringVar(&o.pid, "pid", "", "write the process in charge to this `file`; SIGHUP replaces it")
	fs.Func("codec", "frame messages by `kind`: lines, length (4 bytes, big-endian) or raw (default lines)", o.setCodec)
	cli.LevelFlag(fs, &o.level)
	if err := cli.Parse(fs, args, "[flags]", out); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o *options) check() error {
	if err := cli.CheckAddr(o.addr, "tcp", "unix", "udp"); err != nil {
		return fmt.Errorf("invalid value %q for flag -addr: %w", o.addr, err)
	}
	if err := cli.CheckHostPort(o.metrics); err != nil && o.metrics != "" {
		return fmt.Errorf("invalid value %q for flag -metrics: %w", o.metrics, err)
	}
	switch {
	case o.idle < 0:
		return fmt.Errorf("invalid value %q for flag -idle: it is negative; 0 means never", o.idle)
	case o.delay < 0:
		return fmt.Errorf("invalid value %q for flag -drain-delay: it is negative; 0 means none", o.delay)
	case o.loops < 0:
		return fmt.Errorf(`invalid value "%d" for flag -loops: it is negative; 0 means one for each core`, o.loops)
	}
	return nil
}

func (o *options) setCodec(kind string) error {
	switch kind {
	case "lines":
		o.codec = codec.Lines{}
	case "length":
		o.codec = codec.Length{}
	case "raw":
		o.codec = codec.Raw{}
	default:
		return errors.New("want lines, length or raw")
	}
	return nil
}
