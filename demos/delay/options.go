package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/cli"
)

// options are what the command line says.
type options struct {
	network, addr string
	redis         string
	name          string
	secret        string
	private       bool
	concurrency   int
	attempts      int
	level         zerolog.Level
}

// parse reads the command line. Help goes to out, with the error flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	o := options{network: "tcp", addr: "127.0.0.1:8090"}
	fs := cli.Flags("delay")
	fs.Func("addr", "serve HTTP at this `address`: tcp://host:port or unix://path (default tcp://127.0.0.1:8090)", o.setAddr)
	fs.StringVar(&o.redis, "redis", "", "Redis at this `address`: host:port, a redis:// URL, or those of a cluster, separated by commas; "+
		"without, one in this process, which forgets all when it ends")
	fs.StringVar(&o.name, "name", "delay", "the queue's `name`: programs with the same share the work")
	fs.StringVar(&o.secret, "secret", "", "sign callbacks with this `key`, as Standard Webhooks do")
	fs.BoolVar(&o.private, "private", false, "allow callbacks to private and local addresses")
	fs.IntVar(&o.concurrency, "concurrency", 0, "work on this `number` of tasks at once (default 64)")
	fs.IntVar(&o.attempts, "attempts", 0, "try a task this `number` of times (default 16)")
	cli.LevelFlag(fs, &o.level)
	if err := cli.Parse(fs, args, "[flags]", out); err != nil {
		return o, err
	}
	return o, o.checkRedis()
}

func (o *options) checkRedis() error {
	var err error
	switch {
	case strings.Contains(o.redis, "://"):
		_, err = redis.ParseURL(o.redis)
	case o.redis != "":
		for addr := range strings.SplitSeq(o.redis, ",") {
			if err = cli.CheckHostPort(addr); err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("invalid value %q for flag -redis: %w", o.redis, err)
	}
	return nil
}

// noLog is the log of go-redis: what goes wrong is returned as well, and said once.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(noLog{}) }

func (o *options) setAddr(addr string) error {
	network, rest, ok := strings.Cut(addr, "://")
	if !ok {
		network, rest = "tcp", addr
	}
	if err := cli.CheckAddr(network+"://"+rest, "tcp", "unix"); err != nil {
		return err
	}
	o.network, o.addr = network, rest
	return nil
}

// connect returns a client of the Redis that is wanted, and says what that is.
func connect(ctx context.Context, addr string) (client redis.UniversalClient, what string, closed func(), err error) {
	if addr == "" {
		return embed()
	}
	o := &redis.UniversalOptions{Addrs: strings.Split(addr, ",")}
	if strings.Contains(addr, "://") {
		u, err := redis.ParseURL(addr)
		if err != nil {
			return nil, "", nil, fmt.Errorf("-redis: %w", err)
		}
		o = &redis.UniversalOptions{Addrs: []string{u.Addr}, Username: u.Username, Password: u.Password, DB: u.DB, TLSConfig: u.TLSConfig}
	}
	o.DialTimeout = 3 * time.Second
	client = redis.NewUniversalClient(o)
	info, err := client.Info(ctx, "cluster").Result()
	if err != nil {
		client.Close()
		return nil, "", nil, fmt.Errorf("redis at %s does not answer: %w", strings.Join(o.Addrs, ", "), err)
	}
	what = "redis at " + strings.Join(o.Addrs, ", ")
	if strings.Contains(info, "cluster_enabled:1") {
		client.Close()
		o.IsClusterMode = true
		client, what = redis.NewUniversalClient(o), "the cluster with "+strings.Join(o.Addrs, ", ")
	}
	return client, what, func() { client.Close() }, nil
}

// embed starts a Redis in this process.
func embed() (redis.UniversalClient, string, func(), error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(net.JoinHostPort("127.0.0.1", "0")); err != nil {
		return nil, "", nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	closed := func() {
		client.Close()
		m.Close()
	}
	return client, "a Redis in this process, which forgets all when it ends (-redis ADDR uses a real one)", closed, nil
}
