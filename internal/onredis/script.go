package onredis

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"
)

// A Script is a program that Redis runs. It is sent by its hash, and whole where that is not known.
type Script struct {
	*redis.Script
	source string
}

// NewScript returns the script in files of the folder lua, one after the other.
func NewScript(files embed.FS, names ...string) *Script {
	var source string
	for _, name := range names {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the program was built without it
		}
		source += string(text)
	}
	return &Script{redis.NewScript(source), source}
}

// A Once is a command that go-redis does not send again by itself, nor the pipeline that it is in: a
// message would be published twice, or a script answer the second time that there is nothing to do.
type Once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (Once) NoRetry() bool { return true }

// Call has p, a client or a pipeline, run the script, by its hash or whole: Once, unless it may be
// sent again. The error is in the command, after Exec of a pipeline.
func (s *Script) Call(ctx context.Context, p interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, whole, again bool, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	if whole {
		all = append(all, "eval", s.source, len(keys))
	} else {
		all = append(all, "evalsha", s.Hash(), len(keys))
	}
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	if again {
		_ = p.Process(ctx, cmd)
	} else {
		_ = p.Process(ctx, Once{cmd})
	}
	return cmd
}
