package rediswheel

import (
	"context"
	"hash/fnv"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Who looks after a shard is settled by its own hash in Redis, and that is only to save work: two
// who think that a shard is theirs share its tasks, as each claim takes what it takes. A worker
// takes the shards for which rendezvous hashing (Thaler and Ravishankar, 1998) ranks it first among
// the workers it knows. What it costs does not depend on the number of workers: owners renew, with
// a script per shard and refresh; one of them looks whether the others are still there, and another
// whether that one is, see watchFrom; and the more workers there are, the more seldom each says that
// it lives.

func jitter(d time.Duration) time.Duration { return mathrand.N(max(d, 1)) }

// A message is what workers and scripts publish: a word and its arguments.
type message struct {
	word string
	args []string
}

// hear acts on a message.
func (w *worker) hear(m message) {
	switch m.word {
	case "due":
		w.hearDue(m.args)
	case "join":
		w.hearJoin(m.args)
	case "help":
		w.hearHelp(m.args)
	case "left":
		w.hearLeft(m.args)
	case "lost":
		w.hearLost(m.args)
	case "first":
		w.hearFirst(m.args)
	}
}

// say publishes a message, which may be lost: others notice sooner or later.
func (w *worker) say(text string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.client.Publish(ctx, w.q.channel, text).Err()
	}()
}

// index returns the shard that an argument names, or -1.
func (w *worker) index(args []string, n int) int {
	if n >= len(args) {
		return -1
	}
	i, err := strconv.Atoi(args[n])
	if err != nil || i < 0 || i >= len(w.loop.shards) {
		return -1
	}
	return i
}

// hearDue: something is due earlier than the shard's owner would look.
func (w *worker) hearDue(args []string) {
	i := w.index(args, 0)
	if i < 0 || len(args) < 2 {
		return
	}
	s := &w.loop.shards[i]
	at := time.Duration(1) // at once, as long as it is not known what time it is there
	if s.known {
		at = max(time.Duration(toInt(args[1]))*time.Millisecond-s.offset, 1)
	}
	switch {
	case s.busy:
		if s.first == 0 || at < s.first {
			s.first = at
		}
	case !s.mine:
	case s.backlog: // looked at as soon as there is a place
	case at < s.at:
		w.wakePaced(i, at, pace)
	}
}

// hearLost: messages about a shard have been lost. Looking at it makes up for that.
func (w *worker) hearLost(args []string) {
	i := w.index(args, 0)
	if i < 0 {
		return
	}
	switch s := &w.loop.shards[i]; {
	case s.busy:
		s.first = 1
	case s.mine && !s.backlog:
		w.makeReady(i)
	}
}

// hearJoin: there is another worker, which takes what it ranks first for.
func (w *worker) hearJoin(args []string) {
	if len(args) == 1 && !slices.Contains(w.loop.members, args[0]) {
		w.loop.members = append(w.loop.members, args[0])
	}
}

// hearLeft: a worker has given shards up. The one who ranks first looks at once.
func (w *worker) hearLeft(args []string) {
	if len(args) == 0 || args[0] == w.id {
		return
	}
	w.loop.members = slices.DeleteFunc(w.loop.members, func(m string) bool { return m == args[0] })
	for n := 1; n < len(args); n++ {
		i := w.index(args, n)
		if i < 0 || w.loop.shards[i].mine {
			continue
		}
		rank, s := w.rank(i), &w.loop.shards[i]
		s.help = false
		if rank <= seconds && s.busy {
			s.first = 1
		} else if rank <= seconds { // the others look whether it was taken
			w.wake(i, w.now()+w.q.cfg.Refresh/4*time.Duration(rank))
		}
	}
}

// hearFirst: another worker owns the first shard now. Whoever ranks first for watching it depends on
// that, and all must know, or each may take another for the one who looks.
func (w *worker) hearFirst(args []string) {
	s := &w.loop.shards[firstShard]
	if len(args) == 0 || args[0] == w.id || s.mine {
		return
	}
	s.owner = args[0]
	w.watchFrom(w.now() + 3*w.q.cfg.Refresh)
}

// hearHelp: an owner has more that is due than it has places.
func (w *worker) hearHelp(args []string) {
	if len(args) == 0 || args[0] == w.id {
		return
	}
	for n := 1; n < len(args); n++ {
		i := w.index(args, n)
		if i < 0 {
			continue
		}
		if s := &w.loop.shards[i]; !s.mine && !s.busy && !s.ready && w.places() > 0 {
			s.help = true
			w.wake(i, w.now()+jitter(5*time.Millisecond))
		}
	}
}

// cry asks others for help, if there is more to do than places, at most ten times a second.
func (w *worker) cry() {
	if w.now() < w.loop.cried+100*time.Millisecond || w.places() > 0 || len(w.loop.members) < 2 {
		return
	}
	text := "help " + w.id
	n := 0
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; s.mine && s.backlog {
			text += " " + strconv.Itoa(i)
			n++
		}
	}
	if n == 0 {
		return
	}
	w.loop.cried = w.now()
	w.say(text)
}

// rebalance takes the shards that should be this worker's, given who lives.
func (w *worker) rebalance(members []string) {
	w.loop.members = members
	for i := range w.loop.shards {
		s := &w.loop.shards[i]
		if s.mine || s.busy {
			continue
		}
		if w.rank(i) == 0 {
			s.take, s.help = true, false
			w.makeReady(i)
		}
	}
}

// seconds is how many workers look after a shard that was given up, besides the one who is first to
// take it.
const seconds = 3

// rank returns how many workers rank before this one for a shard. The owner of the first shard is not
// among those who watch it.
func (w *worker) rank(shard int) (n int) {
	mine := score(shard, w.id)
	for _, m := range w.loop.members {
		if shard == everyShard && m == w.loop.shards[firstShard].owner {
			continue
		}
		if s := score(shard, m); s > mine || s == mine && m > w.id {
			n++
		}
	}
	return n
}

func score(shard int, worker string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(worker))
	h.Write([]byte{byte(shard), byte(shard >> 8)})
	rank := h.Sum64()
	rank ^= rank >> 31
	rank *= 0x9e3779b97f4a7c15
	return rank ^ rank>>29
}

// beatEvery is how often a worker says that it lives that knows of no other.
const beatEvery = 5 * time.Second

// beat says that this worker lives, and hears who else does: the first time, all others hear it,
// too. With many workers each does so more seldom.
func (w *worker) beat(ctx context.Context) {
	members, joined := 1, false
	for ctx.Err() == nil {
		period := beatEvery
		if members > 1 { // who come and go say so, and others look for those who do not
			period *= 2 * time.Duration(members)
		}
		v, err := eval(ctx, w.client, call{scriptBeat, w.q.workers, []any{"", w.id, 3 * period.Milliseconds()}})
		if err == nil {
			names := list(v)
			if !joined {
				joined = w.client.Publish(ctx, w.q.channel, "join "+w.id).Err() == nil
			}
			members = max(len(names), 1)
			w.crowd.Store(int64(members))
			select {
			case w.beats <- names:
			case <-ctx.Done():
			}
		} else {
			period = time.Second
		}
		sleep(ctx, period*3/4+jitter(period/4))
	}
}

// leave gives the worker's shards up, for others to take at once.
func (w *worker) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	calls := []call{{scriptBeat, w.q.workers, []any{"", w.id, ""}}}
	for i := range w.loop.shards {
		if w.loop.shards[i].mine {
			calls = append(calls, w.q.on(i, scriptLeave, w.id, w.q.channel, "left "+w.id+" "+strconv.Itoa(i)))
		}
	}
	_, _ = evalAll(ctx, w.client, calls) // what is not heard of lapses
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
