package rediswheel

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Who owns a shard is settled by a lease in its own hash in Redis, which the owner renews with its
// claims. That only saves work: two who think that a shard is theirs share its tasks. What idle
// workers cost does not depend on how many they are. One of those who do not own a shard looks, at
// random, when its lease may have ended, and tells the others what it found: they look later then.

// A message is what workers and scripts publish: a word and its arguments.
//
//	due KEY MS           something is due in the shard of that own hash, before its owner looks
//	look -               messages may have been lost
//	held WORKER (SHARD OWNER MS)...  who owns shards, and until when
//	help WORKER SHARD... a worker has more to do than places
//	left WORKER SHARD... a worker has given shards up
type message []string

func (w *worker) hear(m message) {
	if len(m) < 2 || m[1] == w.id {
		return
	}
	switch m[0] {
	case "due":
		if i, ours := w.q.shards[m[1]]; ours && len(m) == 3 {
			w.expect(i, max(time.Duration(toInt(m[2]))*time.Millisecond-w.loop.shards[i].offset, 0))
		}
	case "look":
		for i := range w.loop.shards {
			w.expect(i, w.now())
		}
	case "held":
		for a := m[2:]; len(a) >= 3; a = a[3:] {
			if s := w.other(a[0]); s != nil && s.known {
				s.owner = a[1]
				w.wake(int(toInt(a[0])), time.Duration(toInt(a[2]))*time.Millisecond-s.offset+time.Millisecond+jitter(w.q.cfg.Refresh))
			}
		}
	case "help":
		for _, a := range m[2:] {
			if s := w.other(a); s != nil && !s.ready && w.places.open() > 0 {
				s.mode = "help"
				w.wake(int(toInt(a)), w.now()+jitter(5*time.Millisecond))
			}
		}
	case "left":
		owned := 0
		for i := range w.loop.shards {
			if w.loop.shards[i].mine {
				owned++
			}
		}
		for _, a := range m[2:] { // who owns fewest looks first
			if i, err := strconv.Atoi(a); err == nil && i >= 0 && i < len(w.loop.shards) && !w.loop.shards[i].mine {
				wait := min(time.Duration(owned)*5*time.Millisecond, w.q.cfg.Refresh/2) + jitter(10*time.Millisecond)
				w.loop.shards[i].hint = w.now() + wait // if the shard is being claimed
				if s := w.other(a); s != nil {
					s.mode = ""
					w.wake(i, w.now()+wait)
				}
			}
		}
	}
}

// other returns a shard that the worker neither owns nor claims now, or nil.
func (w *worker) other(number string) *shard {
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(w.loop.shards) {
		return nil
	}
	if s := &w.loop.shards[i]; !s.mine && !s.busy {
		return s
	}
	return nil
}

// expect has a shard claimed at a time, if it is the worker's and would not be before.
func (w *worker) expect(i int, at time.Duration) {
	switch s := &w.loop.shards[i]; {
	case s.busy:
		s.hint = min(s.hint, at)
	case s.mine && !s.backlog && at < s.at: // one with a backlog is looked at as soon as there is a place
		w.wake(i, at)
	}
}

// say publishes a message, which may be lost: others notice sooner or later.
func (w *worker) say(m message) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.q.client.Publish(ctx, w.q.channel, strings.Join(m, " ")).Err()
	}()
}

// announce tells others who owns shards that this worker could not claim.
func (w *worker) announce(claims []claim) {
	m := message{"held", w.id}
	for _, c := range claims {
		if c.err == nil && c.mode == "own" && c.owner != w.id {
			m = append(m, strconv.Itoa(c.shard), c.owner, strconv.FormatInt((c.till+c.offset).Milliseconds(), 10))
		}
	}
	if len(m) > 2 {
		w.say(m)
	}
}

// askForHelp asks others to claim, if there is more to do than places, at most ten times a second.
func (w *worker) askForHelp() {
	if w.now() < w.loop.helped+100*time.Millisecond || w.places.open() > 0 {
		return
	}
	m := message{"help", w.id}
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; s.mine && s.backlog {
			m = append(m, strconv.Itoa(i))
		}
	}
	if len(m) > 2 {
		w.loop.helped = w.now()
		w.say(m)
	}
}

// balance has a worker that comes take its share of the shards from those who own most, once.
func (w *worker) balance() {
	if w.loop.balanced {
		return
	}
	owned := map[string]int{w.id: 0}
	for i := range w.loop.shards {
		s := &w.loop.shards[i]
		if !s.known {
			return
		}
		owned[s.owner]++
	}
	w.loop.balanced = true
	for fair := len(w.loop.shards) / len(owned); owned[w.id] < fair; {
		richest, most := -1, 0
		for i := range w.loop.shards {
			if s := &w.loop.shards[i]; !s.mine && s.mode == "" && owned[s.owner] > most {
				richest, most = i, owned[s.owner]
			}
		}
		if richest < 0 || most <= fair {
			return
		}
		s := &w.loop.shards[richest]
		owned[s.owner]--
		owned[w.id]++
		s.mode = "take"
		w.makeReady(richest)
	}
}

// leave gives the worker's shards up, for others to take at once.
func (w *worker) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var calls []call
	for i := range w.loop.shards {
		if w.loop.shards[i].mine {
			calls = append(calls, w.q.on(i, scriptLeave, w.id, w.q.channel, "left "+w.id+" "+strconv.Itoa(i)))
		}
	}
	if len(calls) > 0 {
		_, _ = w.q.evalAll(ctx, calls) // what is not heard of lapses
	}
}

// silence is for how long a worker hears nothing before it asks whether its connection lives.
const silence = time.Minute

// listen hears what is published on the queue's channel, until ctx ends. What is lost is noticed
// within a refresh. So messages are dropped, rather than kept, while the worker is busy.
func (w *worker) listen(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if w.listenOnce(ctx) {
			n = 0
		}
		sleep(ctx, pause(n))
	}
}

// listenOnce listens with one connection until it fails, and reports whether it heard anything.
func (w *worker) listenOnce(ctx context.Context) (heard bool) {
	sub := w.q.client.Subscribe(ctx, w.q.channel)
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	for silent := false; ; {
		patience := silence
		if silent {
			patience = silence / 2
		}
		v, err := sub.ReceiveTimeout(ctx, patience)
		var slow net.Error
		switch {
		case ctx.Err() != nil:
			return heard
		case err == nil:
			heard, silent = true, false
			w.pass(v)
		case errors.As(err, &slow) && slow.Timeout() && !silent && sub.Ping(ctx) == nil:
			silent = true
		default:
			return heard
		}
	}
}

// pass gives a message to the worker's loop.
func (w *worker) pass(v any) {
	m := message{"look", "-"} // it is subscribed: what was published before is lost
	switch v := v.(type) {
	case *redis.Message:
		m = strings.Fields(v.Payload)
	case *redis.Pong:
		return
	}
	select {
	case w.messages <- m:
	default:
	}
}
