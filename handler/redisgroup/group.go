package redisgroup

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A Group is a plain room: connections of all processes that get the same messages, with the face
// of handler.Group. Nothing of it is kept in Redis; a process that has lost its connection misses
// what is said meanwhile. Use Ordered where that matters.
//
// Members in this process get a message at once, or in one order with all others if Config.OneOrder
// is set. Messages of one process arrive in their order everywhere.
type Group struct {
	hub *Hub
	at  place
}

// Name returns the room's name.
func (g *Group) Name() string { return g.at.name }

// Join makes c a member until it leaves or has closed, and reports whether it was none before. It
// must be called on c's loop; Accept may call it, too. The subscription is made in the background:
// what other processes say before that stands is missed. On a closed Hub it reports false.
func (g *Group) Join(c *loop.Conn) bool {
	_, ok := join(g.hub, g.at, c)
	return ok
}

// Leave ends c's membership and reports whether there was one. It must be called on c's loop.
func (g *Group) Leave(c *loop.Conn) bool { return leave(g.hub, g.at, c) }

// Has reports whether c is a member. It must be called on c's loop.
func (g *Group) Has(c *loop.Conn) bool { return has(g.hub, g.at, c) }

// Len returns the number of members in this process. Any goroutine may call it.
func (g *Group) Len() int { return localLen(g.hub, g.at) }

// Each has f called for each member in this process, as handler.Group.Each does.
func (g *Group) Each(f func(c *loop.Conn)) error { return each(g.hub, g.at, f) }

// Broadcast sends msg to all members, in all processes. Any goroutine may call it, a loop's too,
// and it does not wait; msg is copied.
//
// nil means that it is on its way. ErrQueueFull: it did not go to other processes, as too much
// waits for Redis; members here have got it, unless Config.OneOrder is set. A *SizeError or
// ErrClosed: nobody gets it. An *handler.UnreachedError is of a loop of this process. What is lost
// later goes to Config.OnError.
func (g *Group) Broadcast(msg []byte) error { return g.BroadcastExcept(loop.Ref{}, msg) }

// BroadcastExcept is Broadcast to all members but one of this process, usually the one who said it.
func (g *Group) BroadcastExcept(except loop.Ref, msg []byte) error {
	return g.hub.sayPlain(g.at, except, msg)
}

// Kinds of plain messages.
const (
	plainMessage = 'm'
	plainKick    = 'k'
)

// plainHead is the length of what precedes the data of a plain message: its kind, node and number.
const plainHead = 1 + nodeLen + 8

func (h *Hub) sayPlain(p place, except loop.Ref, msg []byte) error {
	if len(msg) > h.cfg.MaxMessage {
		return &SizeError{What: "message", Len: len(msg), Max: h.cfg.MaxMessage}
	}
	if h.isClosed() {
		return ErrClosed
	}
	o := h.plain(p, plainMessage, msg)
	r := h.find(p.channel)
	if r == nil {
		return h.publishing.add(o)
	}
	if h.cfg.OneOrder {
		return h.publishExcept(r, o, except)
	}
	err := h.publishing.add(o)
	return errors.Join(err, r.local.BroadcastExcept(except, msg))
}

// plain makes a plain message.
func (h *Hub) plain(p place, kind byte, msg []byte) *outgoing {
	o := &outgoing{place: p, op: opPlain, seq: h.seq.Add(1), data: make([]byte, 0, plainHead+len(msg))}
	o.deadline = time.Now().Add(h.cfg.PublishTimeout)
	o.data = append(o.data, kind)
	o.data = append(o.data, h.node...)
	o.data = binary.BigEndian.AppendUint64(o.data, o.seq)
	o.data = append(o.data, msg...)
	return o
}

// takePlain delivers what came from Redis.
func (r *room) takePlain(payload []byte) {
	if len(payload) < plainHead {
		return
	}
	own := string(payload[1:1+nodeLen]) == r.hub.node
	var except loop.Ref
	if own {
		if !r.hub.cfg.OneOrder {
			return
		}
		r.mu.Lock()
		except = r.unexcept(binary.BigEndian.Uint64(payload[1+nodeLen : plainHead]))
		r.mu.Unlock()
	}
	data := payload[plainHead:]
	if payload[0] == plainKick {
		r.kick(string(data))
		return
	}
	r.unreached(r.local.BroadcastExcept(except, data))
}

// unreached reports loops of this process that take nothing more, unless they have ended.
func (r *room) unreached(err error) {
	var u *handler.UnreachedError
	if errors.As(err, &u) && !errors.Is(err, loop.ErrServerClosed) {
		r.hub.report(&LostError{Room: r.name, Err: err})
	}
}
