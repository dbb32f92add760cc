package rediswheel

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script is one of lua/*.lua, with what it needs of the others before it: functions that it does
// not use cost as well, as each run makes them anew.
type script struct{ name, text, sha string }

var (
	scriptAdd        = load("keys", "clock", "whole", "batch", "hint", "add")
	scriptCancel     = load("keys", "whole", "state", "batch", "begin", "cancel")
	scriptReschedule = load("keys", "clock", "after", "begin", "hint", "reschedule")
	scriptClaim      = load("keys", "clock", "state", "whole", "batch", "entire", "begin", "hint", "done", "recover", "resume", "claim")
	scriptAck        = load("keys", "whole", "batch", "entire", "begin", "hint", "done", "ack")
	scriptNack       = load("keys", "clock", "after", "state", "whole", "batch", "begin", "hint", "nack")
	scriptExtend     = load("keys", "clock", "whole", "batch", "entire", "begin", "extend")
	scriptLeave      = load("keys", "begin", "leave")
	scriptGet        = load("keys", "whole", "batch", "get")
	scriptList       = load("keys", "whole", "batch", "list")
	scriptStats      = load("keys", "clock", "whole", "stats")
	scriptRequeue    = load("keys", "clock", "after", "begin", "hint", "requeue")
	scriptPurge      = load("keys", "clock", "begin", "purge")
	scriptBeat       = load("clock", "beat")
)

// load puts files together; the last gives the script its name.
func load(files ...string) *script {
	var all strings.Builder
	for _, name := range files {
		text, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the program was built without it
		}
		all.Write(text)
	}
	sum := sha1.Sum([]byte(all.String()))
	return &script{files[len(files)-1], all.String(), hex.EncodeToString(sum[:])}
}

// A call is a script with its keys and arguments.
type call struct {
	script *script
	keys   []string
	args   []any
}

// on makes a call to a shard.
func (q *Queue) on(shard int, s *script, args ...any) call { return call{s, q.keys[shard], args} }

// eval runs one script.
func eval(ctx context.Context, client redis.UniversalClient, c call) (any, error) {
	v, err := client.EvalSha(ctx, c.script.sha, c.keys, c.args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		v, err = client.Eval(ctx, c.script.text, c.keys, c.args...).Result()
	}
	noticeFailure(ctx, client, err)
	return v, explain(c.script.name, err)
}

// noticeFailure has a client of a cluster ask anew where the slots are, if a master could not be
// reached. By itself, go-redis 9.23 does so once a minute, or when a server that lives says MOVED:
// a failover would last that long for us.
func noticeFailure(ctx context.Context, client redis.UniversalClient, err error) {
	var refused redis.Error
	if err == nil || errors.As(err, &refused) {
		return
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// evalAll runs scripts in one pipeline, and again those that a server does not know: it was
// restarted, or is a new master.
func evalAll(ctx context.Context, client redis.UniversalClient, calls []call) ([]any, []error) {
	values, errs := make([]any, len(calls)), make([]error, len(calls))
	if len(calls) == 1 {
		values[0], errs[0] = eval(ctx, client, calls[0])
		return values, errs
	}
	run := func(of []int, queue func(redis.Pipeliner, call) *redis.Cmd) (unknown []int) {
		pipe := client.Pipeline()
		cmds := make([]*redis.Cmd, len(of))
		for i, n := range of {
			cmds[i] = queue(pipe, calls[n])
		}
		_, _ = pipe.Exec(ctx) // each command has its error
		for i, n := range of {
			v, err := cmds[i].Result()
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				unknown = append(unknown, n)
			}
			noticeFailure(ctx, client, err)
			values[n], errs[n] = v, explain(calls[n].script.name, err)
		}
		return unknown
	}
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	unknown := run(all, func(p redis.Pipeliner, c call) *redis.Cmd {
		return p.EvalSha(ctx, c.script.sha, c.keys, c.args...)
	})
	if len(unknown) > 0 {
		run(unknown, func(p redis.Pipeliner, c call) *redis.Cmd {
			return p.Eval(ctx, c.script.text, c.keys, c.args...)
		})
	}
	return values, errs
}

// list takes an answer that is a list of strings; numbers become strings.
func list(v any) []string {
	items, _ := v.([]any)
	out := make([]string, len(items))
	for i, item := range items {
		switch item := item.(type) {
		case string:
			out[i] = item
		case int64:
			out[i] = strconv.FormatInt(item, 10)
		}
	}
	return out
}
