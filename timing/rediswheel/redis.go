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

// scripts are the files of lua by their names, each after the prelude. It says what its keys,
// arguments and answer are.
var scripts = loadScripts()

func loadScripts() map[string]*onredis.Script {
	all := make(map[string]*onredis.Script)
	files, _ := lua.ReadDir("lua") // what is embedded can be read
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		all[name] = onredis.NewScript(lua, "prelude", name)
	}
	return all
}

// repeatable are the scripts that answer the same if the client sends them again.
var repeatable = map[string]bool{"add": true, "get": true, "leave": true, "list": true, "pause": true, "stats": true}

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

// evalAll runs scripts in one pipeline, and waits no longer than ctx. Those that a server does not
// know are sent again with their text: it was restarted, or is a new master.
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
		// A master could not be reached: where are its slots? By itself, go-redis 9.23 asks once a
		// minute, or when a server that lives says MOVED.
		if cluster, ok := q.client.(*redis.ClusterClient); ok && err != nil && !errors.As(err, new(redis.Error)) {
			cluster.ReloadState(ctx)
		}
	}
	return values, errs
}

// now is the time by Redis' clock.
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

// explain makes an error of Redis one of ours.
func explain(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "OOM"):
		return fmt.Errorf("rediswheel: %s: %w: %w", op, ErrFull, err)
	}
	return fmt.Errorf("rediswheel: %s: %w", op, onredis.Explain(err, "docs/delays.md", "Config.Name"))
}

// list takes an answer that is a list of strings; numbers become strings.
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
