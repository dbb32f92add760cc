package rediswheel

import (
	"context"
	"embed"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script is one file of lua, which says what its keys, arguments and answer are.
type script struct {
	name string
	*redis.Script
}

var (
	scriptAdd        = load("add")
	scriptCancel     = load("cancel")
	scriptReschedule = load("reschedule")
	scriptClaim      = load("claim")
	scriptAck        = load("ack")
	scriptNack       = load("nack")
	scriptExtend     = load("extend")
	scriptLeave      = load("leave")
	scriptPause      = load("pause")
	scriptGet        = load("get")
	scriptList       = load("list")
	scriptStats      = load("stats")
	scriptRequeue    = load("requeue")
	scriptPurge      = load("purge")
)

func load(name string) *script {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the program was built without it
	}
	return &script{name, redis.NewScript(string(text))}
}

// A call is a script with its keys and arguments.
type call struct {
	*script
	keys []string
	args []any
}

// on makes a call to a shard.
func (q *Queue) on(shard int, s *script, args ...any) call { return call{s, q.keys[shard], args} }

// eval runs one script.
func (q *Queue) eval(ctx context.Context, c call) (any, error) {
	values, errs := q.evalAll(ctx, []call{c})
	return values[0], errs[0]
}

// evalAll runs scripts in one pipeline. Those that a server does not know are sent again with their
// text: it was restarted, or is a new master.
func (q *Queue) evalAll(ctx context.Context, calls []call) ([]any, []error) {
	values, errs := make([]any, len(calls)), make([]error, len(calls))
	pending := make([]int, len(calls))
	for i := range pending {
		pending[i] = i
	}
	for _, withText := range []bool{false, true} {
		pipe := q.client.Pipeline()
		cmds := make([]*redis.Cmd, len(pending))
		for k, i := range pending {
			if c := calls[i]; withText {
				cmds[k] = c.Eval(ctx, pipe, c.keys, c.args...)
			} else {
				cmds[k] = c.EvalSha(ctx, pipe, c.keys, c.args...)
			}
		}
		_, _ = pipe.Exec(ctx) // each command has its error
		var unknown []int
		for k, i := range pending {
			v, err := cmds[k].Result()
			values[i], errs[i] = v, explain(calls[i].name, err)
			q.noticeFailure(ctx, err)
			if redis.HasErrorPrefix(err, "NOSCRIPT") {
				unknown = append(unknown, i)
			}
		}
		if pending = unknown; len(pending) == 0 {
			break
		}
	}
	return values, errs
}

// noticeFailure has a client of a cluster ask anew where the slots are, if a master could not be
// reached. By itself, go-redis 9.23 does so once a minute, or when a server that lives says MOVED.
func (q *Queue) noticeFailure(ctx context.Context, err error) {
	var refused redis.Error
	if err == nil || errors.As(err, &refused) {
		return
	}
	if cluster, ok := q.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
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
