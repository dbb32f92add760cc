package main

import (
	"slices"
	"sync"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A room is a group of connections on all loops, with a memory. The group broadcasts; the lock is for what the loops
// share: who is here, and what was said. It is held while a broadcast is posted, so that the history and what a member
// is sent have one order: one who joins gets, without a gap and nothing twice, the history and then what follows.
type room struct {
	name  string
	group handler.Group

	mu      sync.Mutex
	names   map[uint64]string // by connection
	history [][]byte          // events, encoded, of which the last max are kept
	max     int
	visits  int  // joins so far
	gone    bool // forgotten: nobody may join any more
}

func newRoom(name string, history int) *room {
	return &room{name: name, names: make(map[uint64]string), max: history}
}

// join makes c a member, tells everybody, and sends c what was said before. It is called on c's loop. It reports false if the
// room was forgotten meanwhile.
func (r *room) join(c *loop.Conn, nick string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.visits++
	r.names[c.ID()] = nick
	r.group.Join(c)
	r.broadcast(c, event{Type: "join", Room: r.name, From: nick, At: now()})
	// The broadcast arrives behind what is sent here: it never runs inline.
	send(c, event{Type: "who", Room: r.name, Names: r.who()})
	for _, e := range r.history {
		_ = c.Send(e)
	}
	return true
}

// leave ends c's membership, if it is a member. It is called on c's loop, also when c has closed. If it was the last one,
// forget is called on that loop when the room should be forgotten.
func (r *room) leave(c *loop.Conn, why string, forget func(visits int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nick, ok := r.names[c.ID()]
	if !ok {
		return
	}
	delete(r.names, c.ID())
	r.group.Leave(c)
	r.broadcast(c, event{Type: "leave", Room: r.name, From: nick, Text: why, At: now()})
	if visits := r.visits; len(r.names) == 0 {
		c.Loop().AfterFunc(remember, func() { forget(visits) })
	}
}

// forget reports whether nobody has joined since there were so many visits; then nobody may any more.
func (r *room) forget(visits int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = r.gone || r.visits == visits
	return r.gone
}

// say broadcasts a message and remembers it.
func (r *room) say(c *loop.Conn, nick, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := event{Type: "say", Room: r.name, From: nick, Text: text, At: now()}
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
	r.broadcast(c, event{Type: "nick", Room: r.name, From: from, To: to})
}

// broadcast sends to all members. A loop that takes nothing more is too busy, or has ended; its members miss it.
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

// A registry is a map that loops share.
type registry[T any] struct {
	mu sync.Mutex
	m  map[string]T
}

// add reports whether name was free and is v's now.
func (g *registry[T]) add(name string, v T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.m[name]; ok {
		return false
	}
	g.set(name, v)
	return true
}

func (g *registry[T]) set(name string, v T) {
	if g.m == nil {
		g.m = make(map[string]T)
	}
	g.m[name] = v
}

func (g *registry[T]) get(name string) (v T, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok = g.m[name]
	return v, ok
}

// getOrAdd returns what has the name, made by make if nothing had.
func (g *registry[T]) getOrAdd(name string, make func() T) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.m[name]
	if !ok {
		v = make()
		g.set(name, v)
	}
	return v
}

// removeIf removes what has the name if ok says so.
func (g *registry[T]) removeIf(name string, ok func(v T) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, has := g.m[name]; has && ok(v) {
		delete(g.m, name)
	}
}

func (g *registry[T]) remove(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.m, name)
}

// all returns the values.
func (g *registry[T]) all() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]T, 0, len(g.m))
	for _, v := range g.m {
		all = append(all, v)
	}
	return all
}
