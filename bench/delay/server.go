//go:build linux

package main

import (
	"context"
	"fmt"
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

// usage is what Redis has used.
type usage struct {
	redis     time.Duration // CPU time
	scripts   float64       // how many were run
	inScripts float64       // microseconds, by Redis' own count
	commands  float64       // all, those in scripts included
}

func (r *redisServer) usage() (u usage, err error) {
	info, err := r.client.InfoMap(context.Background(), "stats", "commandstats").Result()
	u.redis = r.CPU()
	u.commands = number(info["Stats"]["total_commands_processed"], "")
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		u.scripts += number(info["Commandstats"][name], "calls=")
		u.inScripts += number(info["Commandstats"][name], ",usec=")
	}
	return u, err
}

// number returns what follows a name, 0 if it is not there.
func number(text, name string) (n float64) {
	_, after, _ := strings.Cut(text, name)
	_, _ = fmt.Sscan(strings.Split(after, ",")[0], &n)
	return n
}

// during measures what a function uses.
func (r *redisServer) during(f func() error) (u usage, err error) {
	before, err := r.usage()
	if err == nil {
		err = f()
	}
	if err != nil {
		return u, err
	}
	after, err := r.usage()
	return usage{after.redis - before.redis, after.scripts - before.scripts,
		after.inScripts - before.inScripts, after.commands - before.commands}, err
}

func (r *redisServer) flush() error { return r.client.FlushAll(context.Background()).Err() }
