package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// A sharedHouse has its rooms in all processes that share a Redis.
type sharedHouse struct {
	chat   *chat
	hub    *redisgroup.Hub
	client redis.UniversalClient

	reminders *reminders

	mu   sync.Mutex
	said map[string]int64 // messages by room, that Redis was not told of yet
}

// Keys of our own: how many messages each room has had, and when somebody was last in it.
const (
	saidKey  = "chat:said"
	roomsKey = "chat:rooms"
)

// countEvery is how often Redis is told how many messages there were.
const countEvery = time.Second

// openHouse opens a Hub on the addresses: one of a server, or some of a cluster.
func openHouse(ctx context.Context, ch *chat, addrs []string) (*sharedHouse, error) {
	h := &sharedHouse{chat: ch, said: make(map[string]int64)}
	h.client = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
	hub, err := redisgroup.Open(ctx, h.client, redisgroup.Config{
		Prefix: "chat", History: 1000, Form: form, OnGap: gap, Logger: ch.opt.logger, Lease: ch.opt.lease,
	})
	if err != nil {
		_ = h.client.Close()
		return nil, err
	}
	h.hub = hub
	if h.reminders, err = openReminders(ctx, h.client, hub); err != nil {
		return nil, errors.Join(err, hub.Close(ctx), h.client.Close())
	}
	go h.count(ctx)
	return h, nil
}

// close leaves all rooms.
func (h *sharedHouse) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	h.reminders.close()
	err := h.hub.Close(ctx)
	return errors.Join(err, h.client.Close())
}

// form makes events of what the room's stream has: with the number by which a page asks for what
// follows.
func form(e redisgroup.Entry) []byte {
	switch e.Kind {
	case redisgroup.Joined:
		return event{Type: "join", Room: e.Room, From: e.User, At: now(), N: e.Position.String(), Old: e.Replayed}.encode()
	case redisgroup.Left:
		return event{Type: "leave", Room: e.Room, From: e.User, At: now(), N: e.Position.String(), Old: e.Replayed}.encode()
	}
	var said event
	if json.Unmarshal(e.Data, &said) != nil {
		return nil // not ours
	}
	said.N, said.Old = e.Position.String(), e.Replayed
	return said.encode()
}

func gap(c *loop.Conn, g *redisgroup.Gap) { send(c, event{Type: "gap", Room: g.Room}) }

func (h *sharedHouse) join(s *session, name, since string) {
	o, err := h.hub.Ordered(name)
	if err != nil {
		s.room = ""
		note(s.c, "%v", err)
		return
	}
	from := redisgroup.From{History: s.chat.opt.history}
	p, err := redisgroup.ParsePosition(since)
	again := err == nil && !p.IsZero()
	if again {
		from = redisgroup.From{Since: p}
	}
	s.shared = o
	o.JoinFrom(s.c, from, func(c *loop.Conn, a redisgroup.Arrival) {
		if a.Err != nil {
			s.shared, s.room = nil, ""
			note(c, "the room cannot be entered now: %v", a.Err)
			return
		}
		if !slices.Contains(a.Who, s.nick) {
			a.Who = append(a.Who, s.nick)
		}
		slices.Sort(a.Who)
		send(c, event{Type: "who", Room: name, Names: a.Who, Since: again, N: a.Position.String()})
		if a.Gap != nil {
			send(c, event{Type: "gap", Room: name})
		}
	})
	if g, err := h.hub.Group(name); err == nil {
		g.Join(s.c) // for those who type
	}
	_ = loop.Offload(s.c, func(ctx context.Context) error { return h.listRoom(ctx, name) }, func(*loop.Conn, error) {})
}

// listRoom has a room listed, first for now.
func (h *sharedHouse) listRoom(ctx context.Context, room string) error {
	return h.client.ZAdd(ctx, roomsKey, redis.Z{Score: float64(time.Now().Unix()), Member: room}).Err()
}

func (h *sharedHouse) leave(s *session, _ string) {
	if s.shared == nil { // entering it has panicked
		return
	}
	s.shared.Leave(s.c)
	if g, err := h.hub.Group(s.shared.Name()); err == nil {
		g.Leave(s.c)
	}
	s.shared = nil
}

func (h *sharedHouse) say(s *session, e event) {
	ref, name := s.c.Ref(), s.room
	err := s.shared.BroadcastThen(e.encode(), func(_ redisgroup.Position, err error) {
		if err == nil {
			h.mu.Lock()
			h.said[name]++
			h.mu.Unlock()
			return
		}
		ref.Tell(func(c *loop.Conn) { unsaid(c, e, err) })
	})
	if err != nil {
		unsaid(s.c, e, err)
	}
}

// unsaid tells one that what it said was lost.
func unsaid(c *loop.Conn, e event, err error) {
	send(c, event{Type: "unsaid", ID: e.ID, Text: e.Text, To: err.Error()})
}

func (h *sharedHouse) typing(s *session) {
	if g, err := h.hub.Group(s.room); err == nil {
		_ = g.BroadcastExcept(s.c.Ref(), event{Type: "typing", Room: s.room, From: s.nick}.encode())
	}
}

func (h *sharedHouse) renamed(s *session, old string) {
	_ = s.shared.Broadcast(event{Type: "nick", Room: s.room, From: old, To: s.nick, At: now()}.encode())
}

func (h *sharedHouse) private(s *session, e event) {
	type found struct {
		nick string
		err  error
	}
	err := loop.Offload(s.c, func(ctx context.Context) found {
		who, _, err := h.hub.Owner(ctx, skeleton(e.To))
		_, nick, _ := strings.Cut(who, " ")
		return found{nick, err}
	}, func(c *loop.Conn, of found) {
		nick := of.nick
		if of.err != nil {
			note(c, "%s cannot be found now: Redis does not answer", e.To)
			return
		}
		if nick == "" {
			note(c, "%s is not here", e.To)
			return
		}
		e.To = nick
		if err := h.hub.Send(nick, e.encode()); err != nil {
			note(c, "%s cannot be reached: %v", e.To, err)
			return
		}
		if nick != s.nick {
			send(c, e)
		}
	})
	if err != nil {
		note(s.c, "%v", err)
	}
}

func (h *sharedHouse) who(s *session) {
	o, name := s.shared, s.room
	type present struct {
		names []string
		err   error
	}
	_ = loop.Offload(s.c, func(ctx context.Context) present {
		names, err := o.Who(ctx)
		slices.Sort(names)
		return present{names, err}
	}, func(c *loop.Conn, p present) {
		if p.err != nil {
			note(c, "who is here cannot be told now: Redis does not answer")
			return
		}
		names := p.names
		send(c, event{Type: "who", Room: name, Names: names, Asked: true})
	})
}

// maxRooms is how many rooms are listed: those in which somebody was last.
const maxRooms = 50

func (h *sharedHouse) list(s *session) {
	_ = loop.Offload(s.c, h.allRooms, func(c *loop.Conn, rooms []roomInfo) { sendRooms(s, rooms) })
}

func (h *sharedHouse) allRooms(ctx context.Context) (rooms []roomInfo) {
	names, err := h.client.ZRevRange(ctx, roomsKey, 0, maxRooms-1).Result()
	if err != nil || len(names) == 0 {
		return nil
	}
	said, _ := h.client.HMGet(ctx, saidKey, names...).Result()
	for i, name := range names {
		o, err := h.hub.Ordered(name)
		if err != nil {
			continue
		}
		r := roomInfo{Name: name}
		r.Here, _ = o.Count(ctx)
		if i < len(said) {
			text, _ := said[i].(string)
			r.Said, _ = strconv.ParseUint(text, 10, 64)
		}
		if r.Here > 0 {
			rooms = append(rooms, r)
		}
	}
	return rooms
}

func (h *sharedHouse) stats() int { return h.hub.Stats().Rooms }

// count tells Redis how many messages there were, once for all.
func (h *sharedHouse) count(ctx context.Context) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.mu.Lock()
		said := h.said
		h.said = make(map[string]int64)
		h.mu.Unlock()
		for room, n := range said { // and that the room is there, should Redis have forgotten all
			_ = h.client.HIncrBy(ctx, saidKey, room, n).Err()
			_ = h.listRoom(ctx, room)
		}
	}
}
