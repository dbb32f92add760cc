package main

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// remember is how long an empty room keeps its history.
const remember = time.Hour

// A room is a group of connections on all loops, with a memory. The group broadcasts; the lock is
// for what the loops share: who is here, and what was said. It is held while a broadcast is posted,
// so that the history and what a member is sent have one order: one who joins gets, without a gap
// and nothing twice, the history and then what follows.
type room struct {
	name  string
	epoch string
	group handler.Group
	said  atomic.Uint64

	mu      sync.Mutex
	names   map[uint64]string // by connection
	number  int               // of the last message
	history [][]byte          // the last messages, encoded, of which max are kept
	max     int
	emptied time.Time // when the last member left
	waiting bool      // a timer looks whether the room may be forgotten
	gone    bool      // forgotten: nobody may join any more
}

func newRoom(name, epoch string, history int) *room {
	return &room{name: name, epoch: epoch, names: make(map[uint64]string), max: history}
}

// join makes c a member, tells everybody, and sends c what was said since, or all that is
// remembered. It is called on c's loop. It reports false if the room was forgotten meanwhile.
func (r *room) join(c *loop.Conn, nick, since string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	old, missed := r.since(since)
	r.names[c.ID()] = nick
	r.group.Join(c)
	r.broadcast(c, event{Type: "join", Room: r.name, From: nick, At: now()})
	// The broadcast arrives behind what is sent here: it never runs inline.
	send(c, event{Type: "who", Room: r.name, Names: r.who(), Since: since != "", N: r.position(r.number)})
	if missed {
		send(c, event{Type: "gap", Room: r.name})
	}
	for _, e := range old {
		_ = c.Send(e)
	}
	return true
}

// since returns what is remembered of what was said behind a position, and whether something of it
// is not. r.mu is held.
func (r *room) since(since string) (old [][]byte, missed bool) {
	epoch, number, _ := strings.Cut(since, "-")
	n, err := strconv.Atoi(number)
	if since == "" {
		return r.history, false
	}
	if epoch != r.epoch || err != nil || n < 0 || n > r.number {
		return r.history, true
	}
	behind := r.number - n
	return r.history[max(0, len(r.history)-behind):], behind > len(r.history)
}

func (r *room) position(number int) string { return r.epoch + "-" + strconv.Itoa(number) }

// leave ends c's membership, if it is a member. It is called on c's loop, also when c has closed.
// After the last one the room is remembered for a while; then forget is called on that loop, which
// has to call r.forget. However often a room is entered and left, it has one timer.
func (r *room) leave(c *loop.Conn, why string, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nick, ok := r.names[c.ID()]
	if !ok {
		return
	}
	delete(r.names, c.ID())
	r.group.Leave(c)
	r.broadcast(c, event{Type: "leave", Room: r.name, From: nick, Text: why, At: now()})
	if len(r.names) > 0 {
		return
	}
	r.emptied = time.Now()
	if !r.waiting {
		r.waiting = true
		r.lookIn(c.Loop(), remember, forget)
	}
}

// lookIn looks d from now whether the room may be forgotten.
func (r *room) lookIn(l *loop.Loop, d time.Duration, forget func()) {
	l.AfterFunc(d, func() {
		forget()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.waiting = !r.gone && len(r.names) == 0; r.waiting {
			r.lookIn(l, max(time.Second, time.Until(r.emptied.Add(remember))), forget)
		}
	})
}

// forget reports whether the room has been empty for long enough; then nobody may join any more.
func (r *room) forget() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = r.gone || len(r.names) == 0 && time.Since(r.emptied) >= remember
	return r.gone
}

// say broadcasts a message and remembers it.
func (r *room) say(c *loop.Conn, e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.said.Add(1)
	e.N = r.position(r.number)
	r.broadcast(c, e)
	if r.max == 0 {
		return
	}
	if len(r.history) == r.max {
		r.history = slices.Delete(r.history, 0, 1)
	}
	e.Old = true
	r.history = append(r.history, e.encode())
}

// rename tells everybody about a new nickname.
func (r *room) rename(c *loop.Conn, from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[c.ID()] = to
	r.broadcast(c, event{Type: "nick", Room: r.name, From: from, To: to, At: now()})
}

// broadcast sends to all members. A loop that takes nothing more is too busy, or has ended; its
// members miss it.
func (r *room) broadcast(c *loop.Conn, e event) {
	if err := r.group.Broadcast(e.encode()); err != nil {
		c.Log().Warn().Err(err).Str("room", r.name).Msg("not all members were reached")
	}
}

// who returns the names of the members, sorted. r.mu is held.
func (r *room) who() []string {
	names := make([]string, 0, len(r.names))
	for _, n := range r.names {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (r *room) members() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.who()
}
