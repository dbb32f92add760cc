package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is one of our own, without persistence.
type redisServer struct {
	addr   string
	dir    string
	cmd    *exec.Cmd
	client *redis.Client
	shards int // of rediswheel
}

func startRedis() (*redisServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	ln.Close()
	dir, err := os.MkdirTemp("", "delay")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	r := &redisServer{addr: addr, dir: dir, cmd: exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir, "--loglevel", "warning")}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-server: %w (apt-get install redis-server)", err)
	}
	r.client = redis.NewClient(&redis.Options{Addr: addr})
	for range 6000 { // a minute
		if err = r.client.Ping(context.Background()).Err(); err == nil {
			return r, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	return nil, err
}

func (r *redisServer) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	_ = os.RemoveAll(r.dir)
}

// usage is what Redis and this process have used so far.
type usage struct {
	at           time.Time
	redis, ours  time.Duration // CPU time
	scripts      float64       // microseconds in scripts and in commands outside of scripts, by commandstats
	commands     float64       // all, those in scripts included
	usedMemory   float64
	scriptsCalls float64
}

func (r *redisServer) usage() (u usage, err error) {
	ctx := context.Background()
	info, err := r.client.Info(ctx, "cpu", "stats", "memory").Result()
	if err != nil {
		return u, err
	}
	seconds := number(info, "used_cpu_sys") + number(info, "used_cpu_user")
	u.at, u.redis, u.ours = time.Now(), time.Duration(seconds*1e9), ownCPU()
	u.commands, u.usedMemory = number(info, "total_commands_processed"), number(info, "used_memory")
	stats, err := r.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return u, err
	}
	for _, name := range []string{"evalsha", "eval"} {
		_, rest, ok := strings.Cut(stats, "cmdstat_"+name+":calls=")
		if !ok {
			continue
		}
		calls, rest, _ := strings.Cut(rest, ",usec=")
		usec, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseFloat(calls, 64)
		us, _ := strconv.ParseFloat(usec, 64)
		u.scriptsCalls, u.scripts = u.scriptsCalls+n, u.scripts+us
	}
	return u, nil
}

func number(info, name string) float64 {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return n
		}
	}
	return 0
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// during measures what a function uses.
func (r *redisServer) during(f func() error) (u usage, took time.Duration, err error) {
	before, err := r.usage()
	if err != nil {
		return u, 0, err
	}
	if err := f(); err != nil {
		return u, 0, err
	}
	after, err := r.usage()
	return usage{redis: after.redis - before.redis, ours: after.ours - before.ours, scripts: after.scripts - before.scripts,
		commands: after.commands - before.commands, scriptsCalls: after.scriptsCalls - before.scriptsCalls,
		usedMemory: after.usedMemory - before.usedMemory}, after.at.Sub(before.at), err
}

func (r *redisServer) flush() error { return r.client.FlushAll(context.Background()).Err() }
