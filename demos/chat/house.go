package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A house is where the rooms are: in this process, or in all that share a Redis. Its methods are
// called on the loop of the session's connection, where what they are given runs, too: at once, or
// a while later.
type house interface {
	// claim makes nick the session's and the old one free, unless somebody else has it: then err is
	// errTaken. A session claims one at a time.
	claim(s *session, nick string, then func(err error))
	// release gives a nickname back that the session has, or claims: its connection has closed.
	release(s *session, nick string)
	// join sends what was said since, or the history if that is "", and who is here.
	join(s *session, room, since string)
	leave(s *session, why string)
	say(s *session, e event)
	typing(s *session)
	// renamed tells the session's room about its new nickname.
	renamed(s *session, old string)
	private(s *session, e event)
	// remind sends the text to the session, or to who has its nickname then, d from now.
	remind(s *session, d time.Duration, text string)
	who(s *session)
	list(s *session)
	// stats returns how many rooms have members here, for the live view.
	stats() int
}

// maxLocalRooms is how many rooms there may be, those included that are empty and still remembered.
const maxLocalRooms = 10_000

var errTaken = errors.New("somebody else has that name")

// A localHouse has its rooms in this process.
type localHouse struct {
	chat  *chat
	rooms registry[*room]
	nicks registry[tenant] // who is who, for private messages: by skeleton
	epoch string           // of the positions: when it was built
}

// A tenant is who has a nickname.
type tenant struct {
	ref  loop.Ref
	key  string
	nick string
}

func newLocalHouse(ch *chat) *localHouse {
	return &localHouse{chat: ch, epoch: strconv.FormatInt(time.Now().UnixMilli(), 10)}
}

func (h *localHouse) claim(s *session, nick string, then func(err error)) {
	now, old := skeleton(nick), skeleton(s.nick)
	me := tenant{s.c.Ref(), s.key, nick}
	switch {
	case s.nick != "" && now == old:
		h.nicks.put(now, me)
	case !h.nicks.add(now, me):
		if ghost, ok := h.nicks.replaceIf(now, me, func(t tenant) bool { return s.key != "" && t.key == s.key }); ok {
			ghost.ref.Tell(func(c *loop.Conn) { c.CloseWithError(errElsewhere) })
			break
		}
		then(errTaken)
		return
	default:
		h.nicks.removeIf(old, func(t tenant) bool { return t.ref == s.c.Ref() })
	}
	then(nil)
}

func (h *localHouse) release(s *session, nick string) {
	h.nicks.removeIf(skeleton(nick), func(t tenant) bool { return t.ref == s.c.Ref() })
}

func (h *localHouse) join(s *session, name, since string) {
	for {
		r, ok := h.rooms.getOrAdd(name, maxLocalRooms, func() *room { return newRoom(name, h.epoch, s.chat.opt.history) })
		if !ok {
			s.room = ""
			note(s.c, "there are %d rooms, and no more can be opened now: /list shows those with somebody in them", maxLocalRooms)
			return
		}
		if r.join(s.c, s.nick, since) {
			s.local = r
			return
		}
	}
}

func (h *localHouse) leave(s *session, why string) {
	r := s.local
	s.local = nil
	if r == nil { // entering it has panicked
		return
	}
	r.leave(s.c, why, func() {
		h.rooms.removeIf(r.name, func(now *room) bool { return now == r && r.forget() })
	})
}

func (h *localHouse) say(s *session, e event)        { s.local.say(s.c, e) }
func (h *localHouse) renamed(s *session, old string) { s.local.rename(s.c, old, s.nick) }

func (h *localHouse) typing(s *session) {
	_ = s.local.group.BroadcastExcept(s.c.Ref(), event{Type: "typing", Room: s.local.name, From: s.nick}.encode())
}

func (h *localHouse) private(s *session, e event) {
	to, ok := h.nicks.get(skeleton(e.To))
	if !ok {
		note(s.c, "%s is not here", e.To)
		return
	}
	e.To = to.nick
	if err := to.ref.Tell(func(c *loop.Conn) { send(c, e) }); err != nil {
		note(s.c, "%s cannot be reached: %v", e.To, err)
		return
	}
	send(s.c, e)
}

func (h *localHouse) who(s *session) {
	send(s.c, event{Type: "who", Room: s.room, Names: s.local.members(), Asked: true})
}

func (h *localHouse) list(s *session) {
	var rooms []roomInfo
	for _, r := range h.rooms.all() {
		if n := r.group.Len(); n > 0 {
			rooms = append(rooms, roomInfo{Name: r.name, Here: n, Said: r.said.Load()})
		}
	}
	sendRooms(s, rooms)
}

// sendRooms answers /list.
func sendRooms(s *session, rooms []roomInfo) {
	slices.SortFunc(rooms, func(a, b roomInfo) int { return strings.Compare(a.Name, b.Name) })
	send(s.c, event{Type: "rooms", Rooms: rooms, Asked: s.asked})
}

func (h *localHouse) stats() (n int) {
	for _, r := range h.rooms.all() {
		if r.group.Len() > 0 {
			n++
		}
	}
	return n
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

func (g *registry[T]) put(name string, v T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(name, v)
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

// getOrAdd returns what has the name, made by make if nothing had. False: nothing has, and there
// are max values already.
func (g *registry[T]) getOrAdd(name string, max int, make func() T) (v T, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok = g.m[name]; !ok && len(g.m) < max {
		v, ok = make(), true
		g.set(name, v)
	}
	return v, ok
}

// replaceIf gives the name to v if ok says so of what has it, and returns that.
func (g *registry[T]) replaceIf(name string, v T, ok func(old T) bool) (old T, replaced bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old, has := g.m[name]
	if replaced = has && ok(old); replaced {
		g.m[name] = v
	}
	return old, replaced
}

// removeIf removes what has the name if ok says so.
func (g *registry[T]) removeIf(name string, ok func(v T) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, has := g.m[name]; has && ok(v) {
		delete(g.m, name)
	}
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
