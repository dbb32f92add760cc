package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	prefix     = "chat"          // of all keys
	touchEvery = time.Second     // how often Redis learns who has said something
	askWithin  = 3 * time.Second // what Redis is asked is answered by then, or not at all
	maxListed  = 50              // rooms of /list
)

// A chat is what all connections of this process share.
type chat struct {
	opt    options
	id     string // of this process
	client redis.UniversalClient
	hub    *redisgroup.Hub

	mu      sync.Mutex
	touched map[string]int // messages by room, 0 for a sign of life, that Redis was not told of yet

	stop  context.CancelFunc
	ended sync.WaitGroup
}

// openChat opens the rooms on a Redis. The chat must be closed.
func openChat(ctx context.Context, client redis.UniversalClient, opt options) (*chat, error) {
	hub, err := redisgroup.Open(ctx, client, redisgroup.Config{
		Prefix: prefix, History: max(opt.history, 1000), HistoryTime: opt.keep, Lease: opt.lease,
		Form: form, OnGap: gap, Logger: opt.logger,
	})
	if err != nil {
		return nil, err
	}
	ch := &chat{opt: opt, id: rand.Text(), client: client, hub: hub, touched: make(map[string]int)}
	touching, stop := context.WithCancel(context.WithoutCancel(ctx))
	ch.stop = stop
	ch.ended.Go(func() { ch.touchRooms(touching) })
	return ch, nil
}

// close leaves all rooms.
func (ch *chat) close() error {
	ch.stop()
	ch.ended.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	return ch.hub.Close(ctx)
}

// form makes events of what a room's stream has, with the place by which a page asks for what
// follows.
func form(e redisgroup.Entry) []byte {
	out := event{Type: "join", Room: e.Room, From: e.User, At: now()}
	switch e.Kind {
	case redisgroup.Joined:
	case redisgroup.Left:
		out.Type = "leave"
	default:
		if json.Unmarshal(e.Data, &out) != nil {
			return nil // not ours
		}
	}
	out.N, out.Old = e.Position.String(), e.Replayed
	return out.encode()
}

func gap(c *loop.Conn, g *redisgroup.Gap) { send(c, event{Type: "gap", Room: g.Room}) }

// Keys beside those of the hub: when somebody was last in each room, and how many messages it has
// had. Both expire, room by room and as a whole. One hash tag keeps them on one master.
const (
	seenKey = "{" + prefix + "}:seen"
	saidKey = "{" + prefix + "}:said"
)

var errRooms = errors.New("there are too many rooms already; /list has those to go to")

// touchScript forgets the rooms that nobody was in for ARGV[2] seconds. It notes that somebody is
// in room ARGV[1], and has said ARGV[4] messages there, unless that is one room more than ARGV[3].
var touchScript = redis.NewScript(`
local now = tonumber(redis.call('TIME')[1])
for _, room in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])) do
  redis.call('ZREM', KEYS[1], room)
  redis.call('HDEL', KEYS[2], room)
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HINCRBY', KEYS[2], ARGV[1], ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1`)

// touchRoom asks Redis: never call it on a loop.
func (ch *chat) touchRoom(ctx context.Context, room string, said int) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	keep := int64(max(time.Second, ch.opt.keep).Seconds())
	ok, err := touchScript.Run(ctx, ch.client, []string{seenKey, saidKey}, room, keep, ch.opt.rooms, said).Bool()
	if err == nil && !ok {
		err = errRooms
	}
	return err
}

// touch notes that somebody in a room is alive, and has said something there.
func (ch *chat) touch(room string, said int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.touched[room] += said
}

// touchRooms tells Redis of all rooms that were touched, once for all.
func (ch *chat) touchRooms(ctx context.Context) {
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ch.mu.Lock()
		touched := ch.touched
		ch.touched = make(map[string]int)
		ch.mu.Unlock()
		for room, said := range touched {
			if err := ch.touchRoom(ctx, room, said); err != nil && ctx.Err() == nil {
				ch.opt.logger.Warn().Err(err).Str("room", room).Msg("not noted that somebody is there")
			}
		}
	}
}

// roomInfo is a room in a list.
type roomInfo struct {
	Name string `json:"name"`
	Here int    `json:"here"`
	Said uint64 `json:"said"` // messages so far: a page knows how many of them it has seen
}

// list returns the rooms that somebody is in, and was in last. It asks Redis: never call it on a
// loop.
func (ch *chat) list(ctx context.Context) (rooms []roomInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	names, err := ch.client.ZRevRange(ctx, seenKey, 0, maxListed-1).Result()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	said, err := ch.client.HMGet(ctx, saidKey, names...).Result()
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		o, err := ch.hub.Ordered(name)
		if err != nil {
			return nil, err
		}
		r := roomInfo{Name: name}
		if r.Here, err = o.Count(ctx); err != nil {
			return nil, err
		}
		text, _ := said[i].(string)
		r.Said, _ = strconv.ParseUint(text, 10, 64)
		if r.Here > 0 {
			rooms = append(rooms, r)
		}
	}
	slices.SortFunc(rooms, func(a, b roomInfo) int { return strings.Compare(a.Name, b.Name) })
	return rooms, nil
}

// claim claims a nickname for the session's connection, in place of the one that it has. then is
// called on the loop; what is said before that waits.
func (s *session) claim(nick string, then func(err error)) {
	done := false
	s.c.PauseRead()
	err := s.chat.hub.ClaimFor(s.c, nick, s.owner(), func(c *loop.Conn, err error) {
		if done { // this process was cut off, and another has got the name
			c.CloseWithError(errGhost)
			return
		}
		done = true
		c.ResumeRead()
		if err == nil {
			err = s.chat.hub.Bind(c, nick)
		}
		if err == nil {
			if s.nick != "" && s.nick != nick {
				s.chat.hub.ReleaseFor(c, s.nick, s.owner())
			}
			s.nick = nick
		}
		then(err)
	})
	if err != nil {
		s.c.ResumeRead()
		then(err)
	}
}

// owner is by what a nickname is claimed: the secret of a page, which may come back on another
// connection, or else the connection.
func (s *session) owner() string {
	if s.key != "" {
		return s.key
	}
	return "conn" + strconv.FormatUint(s.c.ID(), 36) + "@" + s.chat.id
}

// ask has job ask Redis, and then what comes of it on the session's loop. What is said before that
// waits.
func ask[T any](s *session, job func(ctx context.Context) (T, error), then func(v T, err error)) {
	type answer struct {
		v   T
		err error
	}
	s.c.PauseRead()
	err := loop.Offload(s.c, func(ctx context.Context) answer {
		v, err := job(ctx)
		return answer{v, err}
	}, func(c *loop.Conn, a answer) {
		c.ResumeRead()
		then(a.v, a.err)
	})
	if err != nil {
		s.c.ResumeRead()
		var none T
		then(none, err)
	}
}

// join leaves the session's room for another, unless there are too many. It sends what was said
// there since, or the history if that is "", and who is there.
func (s *session) join(name, since string) {
	if s.room != nil && s.room.Name() == name {
		note(s.c, "you are in %s already", name)
		return
	}
	ask(s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.chat.touchRoom(ctx, name, 0) }, func(_ struct{}, err error) {
		var o *redisgroup.Ordered
		if err == nil {
			o, err = s.chat.hub.Ordered(name)
		}
		if err != nil {
			s.noRoom(name, err)
			return
		}
		s.leave()
		s.enter(o, since)
	})
}

func (s *session) enter(o *redisgroup.Ordered, since string) {
	from := redisgroup.From{History: s.chat.opt.history}
	p, err := redisgroup.ParsePosition(since)
	again := err == nil && !p.IsZero()
	if again {
		from = redisgroup.From{Since: p}
	}
	s.room = o
	o.JoinFrom(s.c, from, func(c *loop.Conn, a redisgroup.Arrival) {
		if a.Err != nil {
			s.room = nil
			s.noRoom(o.Name(), a.Err)
			return
		}
		if !slices.Contains(a.Who, s.nick) {
			a.Who = append(a.Who, s.nick)
		}
		slices.Sort(a.Who)
		send(c, event{Type: "who", Room: o.Name(), Names: a.Who, Since: again, N: a.Position.String()})
		if a.Gap != nil {
			send(c, event{Type: "gap", Room: o.Name()})
		}
	})
	if g, err := s.chat.hub.Group(o.Name()); err == nil {
		g.Join(s.c) // for those who type
	}
}

// noRoom tells one that it is not in the room that it wanted.
func (s *session) noRoom(name string, err error) {
	if !errors.Is(err, errRooms) {
		err = fmt.Errorf("no answer from Redis: %w", err)
	}
	note(s.c, "%s cannot be entered: %v", name, err)
	if s.room == nil {
		send(s.c, event{Type: "who"})
	}
}

func (s *session) leave() {
	if s.room == nil {
		return
	}
	s.room.Leave(s.c)
	if g, err := s.chat.hub.Group(s.room.Name()); err == nil {
		g.Leave(s.c)
	}
	s.room = nil
}

// say publishes a message in the session's room. The sender gets an answer: that Redis has it, as the
// sender may have left the room before the message comes back, or that nobody has heard it, or perhaps nobody.
func (s *session) say(e event) {
	ref := s.c.Ref()
	err := s.room.BroadcastThen(e.encode(), func(_ redisgroup.Position, err error) {
		if err == nil {
			s.chat.touch(e.Room, 1)
		}
		gone := ref.Tell(func(c *loop.Conn) {
			if err != nil {
				unsaid(c, e, err)
			} else if e.ID != "" {
				send(c, event{Type: "ack", ID: e.ID})
			}
		})
		if gone != nil {
			s.chat.opt.logger.Debug().Err(gone).Str("room", e.Room).Msg("the sender left before the answer")
		}
	})
	if err != nil {
		unsaid(s.c, e, err)
	}
}

// whisper sends a message to one user, if somebody has that nickname. It is lost if Redis or the
// user goes just then.
func (s *session) whisper(e event) {
	ask(s, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		_, here, err := s.chat.hub.Owner(ctx, e.To)
		return here, err
	}, func(here bool, err error) {
		if err == nil && !here {
			err = fmt.Errorf("%s is not here", e.To)
		}
		if err == nil {
			err = s.chat.hub.Send(e.To, e.encode())
		}
		switch {
		case err != nil:
			unsaid(s.c, e, err)
		case e.To != s.nick: // otherwise it comes by the hub
			send(s.c, e)
		}
	})
}

// typing tells the others in the room, of which Redis keeps nothing.
func (s *session) typing() {
	if g, err := s.chat.hub.Group(s.room.Name()); err == nil {
		_ = g.BroadcastExcept(s.c.Ref(), event{Type: "typing", Room: s.room.Name(), From: s.nick}.encode())
	}
}
