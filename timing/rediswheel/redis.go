package rediswheel

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

//go:embed lua/*.lua
var lua embed.FS

// scripts are the files of lua by name, each after the prelude, which documents their keys,
// arguments and answers.
var scripts = loadScripts()

func loadScripts() map[string]*onredis.Script {
	all := make(map[string]*onredis.Script)
	files, _ := lua.ReadDir("lua") // embedded files can always be read
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		all[name] = onredis.NewScript(lua, "prelude", name)
	}
	return all
}

// repeatable are the scripts that return the same answer if the client sends them again.
var repeatable = map[string]bool{
	"add": true, "get": true, "leave": true, "list": true, "pause": true, "stats": true, "unclaim": true,
}

// A call is a script with its keys and arguments.
type call struct {
	script string
	keys   []string
	args   []any
}

func (q *Queue) on(shard int, script string, args ...any) call {
	return call{script, q.keys[shard], args}
}

// eval runs one script.
func (q *Queue) eval(ctx context.Context, c call) (any, error) {
	values, errs := q.evalAll(ctx, []call{c})
	return values[0], errs[0]
}

// evalShards runs a script on all shards.
func (q *Queue) evalShards(ctx context.Context, script string, args ...any) ([]any, error) {
	calls := make([]call, len(q.keys))
	for shard := range calls {
		calls[shard] = q.on(shard, script, args...)
	}
	values, errs := q.evalAll(ctx, calls)
	return values, errors.Join(errs...)
}

// evalAll runs scripts in one pipeline, and waits until ctx is done at most. Scripts that a server
// does not know, because it was restarted or is a new master, are sent again with their text.
func (q *Queue) evalAll(ctx context.Context, calls []call) ([]any, []error) {
	values, errs := make([]any, len(calls)), make([]error, len(calls))
	cmds := make([]*redis.Cmd, len(calls))
	pipe := q.client.Pipeline()
	for i, c := range calls {
		cmds[i] = scripts[c.script].Call(ctx, pipe, false, repeatable[c.script], c.keys, c.args)
	}
	var failed error
	if err := onredis.Await(ctx, func() error { _, failed = pipe.Exec(ctx); return nil }); err != nil {
		for i, c := range calls {
			errs[i] = explain(c.script, err)
		}
		return values, errs
	}
	for i, c := range calls {
		v, err := cmds[i].Result()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			v, err = onredis.Answer(ctx, func() (any, error) {
				return scripts[c.script].Call(ctx, q.client, true, repeatable[c.script], c.keys, c.args).Result()
			})
		case v == nil && err == nil: // a hook of the client has kept the pipeline from Redis
			err = failed
		}
		values[i], errs[i] = v, explain(c.script, err)
		// A master could not be reached, so look up its slots again. By itself, go-redis 9.23 does
		// so once a minute, or when a live server answers MOVED.
		if cluster, ok := q.client.(*redis.ClusterClient); ok && err != nil && !errors.As(err, new(redis.Error)) {
			cluster.ReloadState(ctx)
		}
	}
	return values, errs
}

// now returns the time by Redis' clock.
func (q *Queue) now(ctx context.Context) (time.Time, error) {
	now, err := onredis.Answer(ctx, func() (time.Time, error) { return q.client.Time(ctx).Result() })
	return now, explain("time", err)
}

// read reads a string from the master.
func (q *Queue) read(ctx context.Context, key string) (string, error) {
	master, err := onredis.Master(ctx, q.client, key)
	if err != nil {
		return "", err
	}
	return master.Get(ctx, key).Result()
}

// explain converts an error of Redis to one of this package.
func explain(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("rediswheel: %s: %w: %w", op, ErrFull, err)
	}
	return fmt.Errorf("rediswheel: %s: %w", op, onredis.Explain(err, "docs/delays.md", "Config.Name"))
}

// list converts an answer to a list of strings; numbers become strings.
func list(v any) []string {
	items, _ := v.([]any)
	out := make([]string, len(items))
	for i, item := range items {
		if n, ok := item.(int64); ok {
			out[i] = strconv.FormatInt(n, 10)
		} else {
			out[i], _ = item.(string)
		}
	}
	return out
}

func millis(s string) time.Duration { return time.Duration(toInt(s)) * time.Millisecond }

func toInt(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
