package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A once is a command that go-redis does not repeat by itself, nor the pipeline that it is in: a
// message would be published twice.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// queueOnce adds a command to pipe.
func queueOnce(ctx context.Context, pipe redis.Pipeliner, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	_ = pipe.Process(ctx, once{cmd}) // it waits for Exec
	return cmd
}

// queueScript adds a call of a script to pipe.
func queueScript(ctx context.Context, pipe redis.Pipeliner, s *redis.Script, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.Hash(), len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = pipe.Process(ctx, once{cmd})
	return cmd
}

// carry sends a batch in one round trip, and returns what has to be sent again; false once the Hub
// has ended, and has told what became of the batch.
func (w *worker) carry(batch []*outgoing) (again []*outgoing, ok bool) {
	if len(batch) == 0 {
		return nil, true
	}
	all, err := w.exchange(batch)
	if !w.lane.landed(w) {
		return nil, false
	}
	if err != nil {
		return w.retry(nil, batch, err, later), true
	}
	for i, s := range all {
		switch {
		case s.cmd == nil: // there was nothing to ask
		case overtaken(all, i):
			w.lane.hub.abandon(s.items[0], s.cmd.Err())
		default:
			again = w.settle(again, s)
		}
	}
	return again, true
}

// exchange sends a batch. An error means that none of it was sent.
func (w *worker) exchange(batch []*outgoing) ([]*segment, error) {
	client, ctx := w.link.client, w.lane.hub.ctx
	if client == nil {
		return nil, errUnknown
	}
	if batch[0].op < opCatchUp {
		if err := w.prepare(batch); err != nil {
			return nil, err
		}
	}
	all := segments(batch)
	pipe := client.Pipeline()
	for _, s := range all {
		if script, keys, args := w.command(s); script != nil {
			s.cmd = queueScript(ctx, pipe, script, keys, args)
		} else if s.op == opPlain {
			s.cmd = queueOnce(ctx, pipe, w.lane.hub.masters.publish(), s.items[0].channel, s.items[0].data)
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error; the client has timeouts
	return all, nil
}

// command returns the script that does what a segment is for; nil if there is none, or nothing to
// do.
func (w *worker) command(s *segment) (script *redis.Script, keys []string, args []any) {
	hub, first := w.lane.hub, s.items[0]
	switch s.op {
	case opPlain:
	case opOrdered, opPeek, opUser:
		script = publishScript
		keys, args = w.publishArgs(s)
	case opCatchUp:
		if keys, args = hub.missedArgs(s); len(keys) > 0 {
			script = catchUpScript
		}
	case opHistory:
		script, keys, args = historyScript, []string{first.key, hub.keys.users(first.place)}, first.join.args()
	case opName:
		script = claimScript
		keys, args = hub.keeper.claimArgs(first.question)
	}
	return script, keys, args
}

var (
	errUnknown = errors.New("redisgroup: the server is not known")
	errAnswer  = errors.New("redisgroup: an answer of Redis that was not expected")
)

// settle tells those who wait what a segment's answer means for them, and adds to again what has to
// be sent again.
func (w *worker) settle(again []*outgoing, s *segment) []*outgoing {
	hub, err := w.lane.hub, s.cmd.Err()
	if s.op == opName && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		hub.keeper.end(s.items[0].question, s.cmd)
		return again
	}
	if err == nil {
		switch s.op {
		case opPlain:
			hub.stats.published.Add(1)
		case opOrdered, opPeek, opUser:
			again, err = w.settlePublished(again, s)
		case opCatchUp:
			err = settleRooms(s)
		case opHistory:
			err = s.items[0].join.read(s.cmd)
		}
	}
	what := classify(err)
	if s.op == opHistory && what == refused && !isDenied(err) {
		what = later // until its deadline
	}
	switch what {
	case done:
	case refused:
		for _, o := range s.items {
			w.lane.hub.abandon(o, err)
		}
	default:
		again = w.retry(again, s.items, err, what)
	}
	return again
}

// retry adds to again those of items that may be tried again, and does what err asks for.
func (w *worker) retry(again, items []*outgoing, err error, what outcome) []*outgoing {
	w.failure = err
	w.react(err)
	for _, o := range items {
		o.unclear = o.unclear || what == unclear
		if o.op == opPlain && what == unclear {
			w.lane.hub.abandon(o, err)
		} else {
			again = append(again, o)
		}
	}
	return again
}

// react does what an error asks for.
func (w *worker) react(err error) {
	switch {
	case w.link.client == nil || isMoved(err):
		w.lane.hub.masters.reload()
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		for _, s := range []*redis.Script{publishScript, catchUpScript, historyScript, claimScript} {
			if s.Load(w.lane.hub.ctx, w.link.client).Err() != nil {
				return
			}
		}
	case redis.HasErrorPrefix(err, "NOLEASE"):
		w.lane.hub.keeper.renewNow()
	}
}

// giveUp ends what was tried for too long.
func (w *worker) giveUp(late []*outgoing) {
	for _, o := range late {
		e := ErrTimeout
		switch {
		case o.message() && o.unclear:
			e = ErrUncertain
		case w.lane.hub.ctx.Err() != nil:
			e = ErrClosed
		}
		w.lane.hub.abandon(o, fmt.Errorf("%w: %w", e, w.failure))
	}
}

// abandon gives up what Redis has not taken, and says so. What is no message of somebody's is tried
// again after a while.
func (h *Hub) abandon(o *outgoing, err error) {
	switch {
	case o.op == opHistory:
		o.join.refuse(err)
	case o.op == opName:
		cmd := redis.NewCmd(h.ctx)
		cmd.SetErr(err)
		h.keeper.end(o.question, cmd)
	case !o.message():
		h.report(&LostError{Room: o.name, Err: err})
		h.askLater(o)
	default:
		h.stats.lost.Add(1)
		if o.done != nil {
			o.done(Position{}, err)
		} else {
			h.report(&LostError{Room: o.name, Err: err})
		}
	}
}

// refusedWait is when something is tried again that Redis has refused. It doubles each time, up to
// refusedDoublings times.
const (
	refusedWait      = 200 * time.Millisecond
	refusedDoublings = 5
)

// askLater tries again what Redis has refused: until a peek is answered its room takes nothing, and
// of a user it is told whether it is here by then.
func (h *Hub) askLater(o *outgoing) {
	d := refusedWait << min(o.refusals, refusedDoublings)
	o.refusals++
	h.after(d, func() {
		switch {
		case o.op == opUser:
			h.tellAgain(o)
		case h.find(o.channel) == o.room:
			_ = h.lane(o.op).add(o) // fails once the Hub is closed
		}
	})
}

// An outcome is what an error of Redis means for what was sent.
type outcome int

const (
	done    outcome = iota
	refused         // it was not taken, and never will be
	later           // it was not taken now
	unclear         // it may have been taken
)

// classify tells what an error means.
func classify(err error) outcome {
	if err == nil {
		return done
	}
	var answered redis.Error
	if errors.As(err, &answered) {
		return classifyAnswer(answered.Error())
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return later
	}
	return unclear
}

// classifyAnswer tells what an error means that Redis answered with.
func classifyAnswer(text string) outcome {
	switch errorCode(text) {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "BUSY", "NOREPLICAS", "NOLEASE":
		return later
	case "STALE":
		return unclear
	}
	return refused
}

// errorCode returns the first word of an error that Redis answered with. Redis 6 puts in front of
// it where a script has met it: "ERR Error running script (call to f_...): @user_script:1:
// @user_script: 1: -OOM ...".
func errorCode(text string) string {
	if i := strings.LastIndex(text, "@user_script:"); i >= 0 {
		if _, after, ok := strings.Cut(text[i:], ": -"); ok {
			text = after
		}
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	return word
}

// isMoved reports whether an error says that a bucket has gone elsewhere.
func isMoved(err error) bool {
	if err == nil {
		return false
	}
	switch errorCode(err.Error()) {
	case "MOVED", "ASK", "CLUSTERDOWN", "READONLY", "MASTERDOWN":
		return true
	}
	return false
}

// isDenied reports whether Redis says that the user has no right to do that.
func isDenied(err error) bool { return err != nil && errorCode(err.Error()) == "NOPERM" }
