package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/internal/cli"
)

// options are what the command line says.
type options struct {
	addr      string
	shards    int
	dir       string
	fsync     string
	password  string
	maxMemory int64
	maxConns  int
	maxOut    int64
	idle      time.Duration
	events    store.Event
	level     zerolog.Level
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	o := options{maxOut: maxOutbound}
	fs := cli.Flags("kv")
	fs.StringVar(&o.addr, "addr", "tcp://127.0.0.1:6380", "listen on this `address`: tcp://host:port or unix://path")
	fs.IntVar(&o.shards, "shards", 1, "spread the keys over this `number` of loops; with 1, one loop owns all data and every command is atomic")
	fs.StringVar(&o.dir, "dir", "", "keep data in append-only files in this `directory`; without it, nothing is kept")
	fs.StringVar(&o.fsync, "appendfsync", "everysec", "fsync the append-only files `when`: always (before a write is confirmed), everysec or no")
	fs.StringVar(&o.password, "requirepass", "", "clients have to AUTH with this `password`")
	fs.Func("maxmemory", "refuse writes that need memory above this `size`, as 100mb; 0 means no limit", o.setMaxMemory)
	fs.IntVar(&o.maxConns, "maxclients", 0, "serve this `number` of clients at most; 0 means what the limit of open files allows")
	fs.Func("client-output-limit", "close a subscriber for whom more than this `size` waits (default 32mb)", o.setMaxOut)
	fs.DurationVar(&o.idle, "timeout", 0, "close a connection that is silent for this `duration`; 0 means never")
	fs.Func("notify-keyspace-events", "publish these `classes` of keyspace events, as Ex for expiry (default none)", o.setEvents)
	cli.LevelFlag(fs, &o.level)
	if err := cli.Parse(fs, args, "[flags]", out); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o *options) check() error {
	if err := cli.CheckAddr(o.addr, "tcp", "unix"); err != nil {
		return fmt.Errorf("invalid value %q for flag -addr: %w", o.addr, err)
	}
	switch {
	case o.shards < 1 || o.shards > 1024:
		return fmt.Errorf(`invalid value "%d" for flag -shards: want 1 to 1024`, o.shards)
	case o.idle < 0:
		return fmt.Errorf("invalid value %q for flag -timeout: it is negative; 0 means never", o.idle)
	case o.maxConns < 0:
		return fmt.Errorf(`invalid value "%d" for flag -maxclients: it is negative; 0 means what the system allows`, o.maxConns)
	case o.fsync != "always" && o.fsync != "everysec" && o.fsync != "no":
		return fmt.Errorf("invalid value %q for flag -appendfsync: want always, everysec or no", o.fsync)
	}
	return nil
}

func (o *options) setMaxMemory(s string) (err error) {
	o.maxMemory, err = parseSize(s)
	return err
}

func (o *options) setMaxOut(s string) (err error) {
	if o.maxOut, err = parseSize(s); err == nil && (o.maxOut < highWater || o.maxOut > math.MaxInt32) {
		err = errors.New("want 256kb to 2gb")
	}
	return err
}

// parseSize reads a size as redis-server's configuration has it: 100, 100kb (1024), 100k (1000).
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(strings.ToLower(s), "kmgb")
	n, err := strconv.ParseInt(digits, 10, 64)
	factor, ok := map[string]int64{
		"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1000 * 1000, "mb": 1 << 20, "g": 1000 * 1000 * 1000, "gb": 1 << 30,
	}[strings.ToLower(s)[len(digits):]]
	if err != nil || !ok || n < 0 || n > math.MaxInt64/factor {
		return 0, errors.New("want a number of bytes, as 1000000, 500kb, 100mb or 1gb")
	}
	return n * factor, nil
}

func (o *options) setEvents(s string) error {
	e, ok := store.ParseEvents(s)
	if !ok {
		return errors.New("want letters of KEg$lshzxAn, as redis-server's notify-keyspace-events has them")
	}
	o.events = e
	return nil
}

// tuneGC lets the garbage collector run less often than Go's default has it, as the heap is the
// data, and more often near the limit. What the environment says has precedence.
func tuneGC(o options) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	limitHeap(o.maxMemory, 0)
}

// limitHeap has the garbage collector run as often as it must to stay near limit, 0 for none, and
// what may be taken besides.
func limitHeap(limit, besides int64) {
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit + limit/8 + besides)
	}
}
