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
var luaFiles embed.FS

// scripts are the files of lua by their names, each after the prelude. It says what its keys,
// arguments and answer are.
var scripts = loadScripts()

func loadScripts() map[string]script {
	all := make(map[string]script)
	files, _ := luaFiles.ReadDir("lua") // what is embedded can be read
	prelude, _ := luaFiles.ReadFile("lua/prelude.lua")
	for _, f := range files {
		text, _ := luaFiles.ReadFile("lua/" + f.Name())
		whole := string(prelude) + string(text)
		all[strings.TrimSuffix(f.Name(), ".lua")] = script{whole, redis.NewScript(whole).Hash()}
	}
	return all
}

type script struct{ text, hash string }

// A once is a command that the client must not send again by itself when the answer is lost: the
// script would run twice, and answer the second time that there is nothing to do.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// repeatable are the scripts that answer the same if the client sends them again.
var repeatable = map[string]bool{"add": true, "get": true, "leave": true, "list": true, "pause": true, "stats": true}

// A call is a script with its keys and arguments.
type call struct {
	script string
	keys   []string
	args   []any
}

// process has p run the script: by its hash, or by its text.
func (c call) process(ctx context.Context, p interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, command, script string) *redis.Cmd {
	args := []any{command, script, len(c.keys)}
	for _, key := range c.keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	if repeatable[c.script] {
		_ = p.Process(ctx, cmd) // the error is in cmd
	} else {
		_ = p.Process(ctx, once{cmd})
	}
	return cmd
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
		cmds[i] = c.process(ctx, pipe, "evalsha", scripts[c.script].hash)
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
				return c.process(ctx, q.client, "eval", scripts[c.script].text).Result()
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
