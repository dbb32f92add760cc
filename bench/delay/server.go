//go:build linux

package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// A redisServer is one of our own.
type redisServer struct {
	*measure.Redis
	client *redis.Client
}

func startRedis() (*redisServer, error) {
	r, err := measure.StartRedis()
	if err != nil {
		return nil, err
	}
	return &redisServer{Redis: r, client: redis.NewClient(&redis.Options{Addr: r.Addr})}, nil
}

// usage is what Redis and this process have used.
type usage struct {
	redis, ours time.Duration // CPU time
	scripts     float64       // how many were run
	inScripts   float64       // microseconds, by Redis' own count
	commands    float64       // all, those in scripts included
}

func (r *redisServer) usage() (u usage, err error) {
	ctx := context.Background()
	info, err := r.client.Info(ctx, "stats").Result()
	if err != nil {
		return u, err
	}
	u.redis, u.ours = r.CPU(), measure.CPU(os.Getpid())
	u.commands = number(info, "total_commands_processed:")
	stats, err := r.client.Info(ctx, "commandstats").Result()
	for _, name := range []string{"evalsha", "eval"} {
		u.scripts += number(stats, "cmdstat_"+name+":calls=")
		_, after, _ := strings.Cut(stats, "cmdstat_"+name+":calls=")
		u.inScripts += number(after, ",usec=")
	}
	return u, err
}

// number returns what follows a name, 0 if it is not there.
func number(info, name string) float64 {
	_, after, ok := strings.Cut(info, name)
	if !ok {
		return 0
	}
	n, _ := strconv.ParseFloat(after[:strings.IndexAny(after+",", ",\r\n")], 64)
	return n
}

// during measures what a function uses.
func (r *redisServer) during(f func() error) (u usage, took time.Duration, err error) {
	before, err := r.usage()
	if err != nil {
		return u, 0, err
	}
	begun := time.Now()
	if err := f(); err != nil {
		return u, 0, err
	}
	took = time.Since(begun)
	after, err := r.usage()
	return usage{after.redis - before.redis, after.ours - before.ours, after.scripts - before.scripts,
		after.inScripts - before.inScripts, after.commands - before.commands}, took, err
}

func (r *redisServer) flush() error { return r.client.FlushAll(context.Background()).Err() }
