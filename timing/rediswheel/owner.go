package rediswheel

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Who owns a shard is settled by a lease in its own hash in Redis, which the owner renews with its
// claims. That only saves work: two who think that a shard is theirs share its tasks. What idle
// workers cost does not depend on how many they are: each renewal is published, and nobody looks at
// a shard whose owner was heard of.

// A message is what workers and scripts publish: a word, the name of a shard's own hash, and more.
//
//	due KEY MS         something is due before the shard's owner looks
//	own KEY WORKER MS  who owns the shard, and until when; - if nobody does
//	busy KEY WORKER    the shard's owner has more to do than places
//	look               messages may have been lost; only within a worker
type message []string

func (w *worker) hear(m message) {
	if m[0] == "look" {
		for i := range w.shards {
			w.expect(i, w.now())
		}
		return
	}
	i, ours := -1, false
	if len(m) > 2 {
		i, ours = w.q.shards[m[1]]
	}
	if !ours {
		return
	}
	s := &w.shards[i]
	at := time.Duration(toInt(m[len(m)-1]))*time.Millisecond - s.offset
	switch mine := s.owner == w.id; {
	case m[0] == "due":
		w.expect(i, max(at, 0))
	case m[0] == "own" && m[2] != w.id && mine: // it may be older than the worker's claim: Redis knows
		w.wake(i, w.now())
	case m[0] == "own" && m[2] != w.id:
		s.owner, s.take, s.backlog = m[2], false, false
		w.wake(i, max(at, w.now())+w.turn())
	case m[0] == "busy" && !mine && !s.busy && w.places.open() > 0:
		s.take = true
		w.wake(i, w.now()+jitter(5*time.Millisecond))
	}
}

// expect has a shard claimed at a time, if it is the worker's and would not be before.
func (w *worker) expect(i int, at time.Duration) {
	s := &w.shards[i]
	if s.busy || s.owner == w.id && !s.backlog && at < s.at { // one with a backlog is looked at as soon as there is a place
		w.wake(i, at)
	}
}

// turn is how long the worker waits before it takes a shard that nobody owns. Those who own fewest
// come first, and one of them tells the others.
func (w *worker) turn() time.Duration {
	owned := time.Duration(0)
	for i := range w.shards {
		if w.shards[i].owner == w.id {
			owned++
		}
	}
	return min(owned*5*time.Millisecond, w.q.cfg.Refresh/2) + jitter(min(100*time.Millisecond, w.q.cfg.Refresh/2))
}

// cry asks others to take shards of which there is more to do than places, at most ten times a
// second.
func (w *worker) cry() {
	if w.now() < w.cried+100*time.Millisecond || w.places.open() > 0 {
		return
	}
	for i := range w.shards {
		if s := &w.shards[i]; s.owner == w.id && s.backlog {
			w.cried = w.now()
			w.do(func(ctx context.Context) func() { // which may be lost: the next will do
				_ = w.q.client.Publish(ctx, w.q.channel, "busy "+w.q.keys[i][ownKey]+" "+w.id).Err()
				return func() {}
			})
		}
	}
}

// balance has a worker that comes take its part of the shards from those who own more, once.
func (w *worker) balance() {
	owned := map[string]int{w.id: 0}
	for i := range w.shards {
		if w.balanced || w.shards[i].owner == "" {
			return
		}
		owned[w.shards[i].owner]++
	}
	w.balanced = true
	fair := len(w.shards) / len(owned)
	for i := range w.shards {
		if s := &w.shards[i]; owned[w.id] < fair && owned[s.owner] > fair {
			owned[s.owner]--
			owned[w.id]++
			s.take = true
			w.wake(i, 0)
		}
	}
}

// leave gives the worker's shards up, for others to take at once.
func (w *worker) leave() {
	var calls []call
	for i := range w.shards {
		if s := &w.shards[i]; s.owner == w.id {
			s.owner = ""
			calls = append(calls, w.q.on(i, "leave", w.id))
		}
	}
	if len(calls) == 0 {
		return
	}
	w.do(func(ctx context.Context) func() {
		_, _ = w.q.evalAll(ctx, calls) // what is not heard of lapses
		return func() {}
	})
}

// listen hears what is published on the queue's channel, until ctx ends. What is lost is noticed
// within a refresh. So messages are dropped, rather than kept, while the worker is busy. A
// connection without even the news of a renewal is given up: an owner publishes one in every second
// refresh.
func (w *worker) listen(ctx context.Context) {
	for fails := 0; ctx.Err() == nil; fails++ {
		sub := w.q.client.Subscribe(ctx, w.q.channel)
		stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
		for {
			v, err := sub.ReceiveTimeout(ctx, 3*w.q.cfg.Refresh)
			if err != nil {
				break
			}
			fails = 0
			m := message{"look"} // it is subscribed: what was published before is lost
			if published, ok := v.(*redis.Message); ok {
				m = strings.Fields(published.Payload)
			}
			select {
			case w.messages <- m:
			default:
			}
		}
		stop()
		_ = sub.Close()
		select {
		case <-ctx.Done():
		case <-time.After(pause(fails)):
		}
	}
}
