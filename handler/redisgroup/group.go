package redisgroup

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A Group is a plain room: connections in all processes that receive the same messages. Redis does
// not store them. A process that loses its connection to Redis misses the messages of that time.
//
// Members in this process get a message at once, unless Config.OneOrder is set. Messages of one
// goroutine arrive in the same order everywhere. Messages of several goroutines may arrive in
// different orders in different processes.
type Group struct{ handle }

// A Room has the methods that Group, Ordered and handler.Group have in common, so that a program
// can start on one machine.
type Room interface {
	Join(c *loop.Conn) bool
	Leave(c *loop.Conn) bool
	Has(c *loop.Conn) bool
	Len() int
	Broadcast(msg []byte) error
	BroadcastExcept(except loop.Ref, msg []byte) error
	Each(f func(c *loop.Conn)) error
}

var _ = []Room{(*Group)(nil), (*Ordered)(nil), (*handler.Group)(nil)}

// Broadcast sends msg to all members, in all processes. Any goroutine may call it, including a
// loop's. It does not wait. It copies msg.
//
// nil means that the message was queued. ErrQueueFull means that the message did not go to other
// processes because the queue to Redis is full; members in this process got it, unless
// Config.OneOrder is set. After a *SizeError or ErrClosed, no member gets the message. A
// *handler.UnreachedError concerns a loop of this process. Config.OnError gets later losses.
func (g *Group) Broadcast(msg []byte) error { return g.BroadcastExcept(loop.Ref{}, msg) }

// BroadcastExcept is like Broadcast but skips one member in this process, usually the sender. With
// Config.OneOrder that member may get the message after all if Redis takes longer than twice
// Config.PublishTimeout.
func (g *Group) BroadcastExcept(except loop.Ref, msg []byte) error {
	return g.hub.sayPlain(g.at, plainMessage, except, msg)
}

// Kinds of plain messages.
const (
	plainMessage = 'm'
	plainKick    = 'k'
)

// plainHead is the length of what precedes the data of a plain message: its kind, node and number.
const plainHead = 1 + nodeLen + 8

// message returns a request that publishes data after head bytes, which the caller must still fill
// in.
func (h *Hub) message(p place, op op, head int, data []byte) (*request, error) {
	if len(data) > h.cfg.MaxMessage {
		return nil, &SizeError{What: "message", Len: len(data), Max: h.cfg.MaxMessage}
	}
	if h.closed.Load() {
		return nil, ErrClosed
	}
	o := &request{place: p, op: op, bounded: true, seq: h.seq.Add(1)}
	o.deadline = time.Now().Add(h.cfg.PublishTimeout)
	o.data = append(make([]byte, head, head+len(data)), data...)
	return o, nil
}

// sayPlain publishes a plain message. Members of this process get it at once, unless
// Config.OneOrder is set.
func (h *Hub) sayPlain(p place, kind byte, except loop.Ref, data []byte) error {
	o, err := h.message(p, opPlain, plainHead, data)
	if err != nil {
		return err
	}
	o.data[0] = kind
	copy(o.data[1:], h.node)
	binary.BigEndian.PutUint64(o.data[1+nodeLen:], o.seq)
	r := h.find(p.channel)
	if r != nil && h.cfg.OneOrder {
		return h.publishExcept(o, except)
	}
	err = h.publish(o)
	if r != nil {
		err = errors.Join(err, r.deliverPlain(kind, except, data))
	}
	return err
}

// publishExcept queues o, with a note that ref must not get it when it comes back. A lost message
// never comes back. So the note expires when o is not retried any more (Config.PublishTimeout) and
// has been in flight for the same time again.
func (h *Hub) publishExcept(o *request, ref loop.Ref) error {
	if ref != (loop.Ref{}) && h.find(o.channel) != nil { // ref may be a member
		_ = h.skipSenders.Set(o.seq, ref, 2*min(h.cfg.PublishTimeout, math.MaxInt64/2)) // closed otherwise
	}
	err := h.publish(o)
	if err != nil {
		h.skipSenders.Remove(o.seq)
	}
	return err
}

// takePlain delivers a message from Redis.
func (r *room) takePlain(payload []byte) {
	if len(payload) < plainHead {
		return
	}
	var except loop.Ref
	if string(payload[1:1+nodeLen]) == r.hub.node {
		if !r.hub.cfg.OneOrder {
			return
		}
		except, _ = r.hub.skipSenders.Remove(binary.BigEndian.Uint64(payload[1+nodeLen : plainHead]))
	}
	err := r.deliverPlain(payload[0], except, payload[plainHead:])
	var u *handler.UnreachedError // from a loop that accepts nothing more
	if errors.As(err, &u) && !errors.Is(err, loop.ErrServerClosed) {
		r.hub.report(&LostError{Room: r.name, Err: err})
	}
}

// deliverPlain applies a plain message to the members in this process.
func (r *room) deliverPlain(kind byte, except loop.Ref, data []byte) error {
	if kind == plainKick {
		reason := string(data)
		r.each(func(c *loop.Conn) { c.CloseWithError(&KickError{reason}) })
		return nil
	}
	return r.local.BroadcastExcept(except, data)
}
