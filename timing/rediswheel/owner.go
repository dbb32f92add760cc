package rediswheel

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// The own hash of a shard in Redis holds its owner and the end of the ownership. The owner renews
// it with its claims. Ownership only saves work: two workers that both believe to own a shard share
// its tasks. Renewals are published, so that the other workers need not query them.

// hear processes a message, which only scripts publish. It contains the name of a shard's own hash,
// a worker, and a time in ms:
//
//	KEY * MS            something is due before the shard's owner looks
//	KEY WORKER MS       who owns the shard, and for how long; - if nobody does
//	KEY WORKER MS more  its owner has more tasks than places
//	KEY ! TOKEN ID      a running task was cancelled
func (w *worker) hear(message string) {
	f := append(strings.SplitN(message, " ", 4), "", "", "", "")
	key, who, ms, more := f[0], f[1], f[2], f[3]
	i, ours := w.q.shards[key]
	if !ours {
		return
	}
	if r := w.held[more]; who == "!" {
		if r != nil && r.token == ms {
			r.cancel(ErrCancelled)
		}
		return
	}
	s, at := &w.shards[i], w.now()+millis(ms)
	mine := s.owner == w.id
	switch {
	case who == "*":
		if mine || s.busy {
			w.look(i, at)
		}
	case who == w.id:
	case mine: // the message may be older than the worker's claim; Redis knows
		w.look(i, w.now())
	default:
		s.owner, s.take, s.ready = who, more != "" && w.now() >= s.shun, false
		s.renew = max(at+w.turn(), s.shun)
		w.wheel.Stop(s.timer)
		w.look(i, s.renew)
		if s.take {
			w.look(i, w.now()+w.turn())
		}
	}
}

// turn returns how long the worker waits before it takes a shard from another worker or an unowned
// one. Workers with the fewest shards come first, and the claim of one informs the others.
func (w *worker) turn() time.Duration {
	wait := jitter(w.q.cfg.Refresh / 20)
	for _, s := range w.shards {
		if s.owner == w.id {
			wait += w.q.cfg.Refresh / 2 / time.Duration(len(w.shards))
		}
	}
	return wait
}

// balance makes a new worker take its part of the shards, once, from workers that own more.
func (w *worker) balance() {
	owned := map[string]int{w.id: 0}
	for _, s := range w.shards {
		owned[s.owner]++
	}
	if w.balanced || owned[""] > 0 {
		return
	}
	w.balanced = true
	fair := len(w.shards) / len(owned)
	for i := range w.shards {
		if s := &w.shards[i]; owned[w.id] < fair && owned[s.owner] > fair {
			owned[s.owner]--
			owned[w.id]++
			s.take = true
			w.look(i, w.now())
		}
	}
}

// leave gives up the worker's shards, so that others can take them at once. If Redis does not get
// the message, the ownership expires.
func (w *worker) leave() {
	for i := range w.shards {
		w.leaveShard(i)
	}
}

func (w *worker) leaveShard(i int) {
	if s := &w.shards[i]; s.owner == w.id {
		s.owner = ""
		w.ask(w.q.on(i, "leave", w.id), func(any) {})
	}
}

// decline gives up a shard with a task that this worker cannot run. The others have one refresh to
// take it, which is longer than their turn.
func (w *worker) decline(i int) {
	s := &w.shards[i]
	s.shun = w.now() + w.q.cfg.Refresh
	if s.busy { // the answer comes back to this
		return
	}
	w.leaveShard(i)
	w.wheel.Stop(s.timer)
	s.ready = false
	w.look(i, s.shun)
}

// listen processes the messages on the queue's channel until ctx is done. It discards a connection
// on which not even renewals arrive: an owner publishes one every second refresh.
//
// It reports a user that is not permitted to subscribe, once.
func (w *worker) listen(ctx context.Context) {
	reported := false
	for ctx.Err() == nil {
		wait := jitter(100 * time.Millisecond)
		sub := w.q.client.Subscribe(ctx, w.q.channel)
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
		for {
			v, err := sub.ReceiveTimeout(ctx, 3*w.q.cfg.Refresh)
			if onredis.Denied(err) {
				wait = w.q.cfg.Refresh
				if !reported {
					reported = true
					w.q.report(wrap(ErrHints, "SUBSCRIBE to %s: %v: tasks may be late by Config.Refresh", w.q.channel, err))
				}
			}
			if err != nil {
				break
			}
			switch v := v.(type) {
			case *redis.Message:
				w.post(func() { w.hear(v.Payload) })
			case *redis.Subscription: // earlier messages are lost
				w.post(w.lookAtAll)
			}
		}
		stop()
		_ = sub.Close()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
