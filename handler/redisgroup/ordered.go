package redisgroup

import (
	"context"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// An Ordered is a room in which each member gets all messages of all processes once and in one
// order, numbered as in a Redis stream, which is also the room's history. A process that lost its
// connection to Redis catches up; if it cannot, Config.OnGap reports that to members.
//
// The users of its members (see Hub.Bind) are the room's presence: who is in the room, across all
// processes.
type Ordered struct{ handle }

// JoinFrom makes c a member and sends it history, which is read from Redis. Then, in one turn of
// c's loop, c becomes a member, then is called, and c gets the history, formatted by Config.Form,
// and what follows: each entry once, none left out, unless Arrival.Gap says so. Has is false until
// then: a handler that needs it to be true calls PauseRead before, and ResumeRead in then.
//
// It must be called on c's loop, and returns false, without calling then, if c is already a member
// or joining, or if c or the Hub is closed. Leave also ends the joining. A nil then panics.
func (o *Ordered) JoinFrom(c *loop.Conn, from From, then func(c *loop.Conn, a Arrival)) bool {
	if then == nil {
		panic("redisgroup: JoinFrom with a nil func")
	}
	m, r := o.enter(c)
	if r == nil {
		return false
	}
	j := &joining{room: r, ref: c.Ref(), from: from, then: then}
	m.rooms[r] = j
	r.begin(j)
	return true
}

// Position returns the position of the last entry that c has got, after it has sent c the entries
// that are on their way. It is for Save of a loop.Saver: in the next process Accept passes it to
// JoinFrom as From.Since, and c misses nothing. A user who is bound to c there within a second does
// not leave the room. false: c is not a member, or the position of the room is not known yet. It
// must be called on c's loop.
func (o *Ordered) Position(c *loop.Conn) (p Position, ok bool) {
	m, r := (*o.hub.members.Get(c.Loop()))[c], o.hub.find(o.at.channel)
	if m == nil || r == nil {
		return p, false
	}
	j, isIn := m.rooms[r]
	if j != nil { // it has got nothing yet
		return j.from.Since, !j.from.Since.IsZero()
	}
	for isIn {
		p = r.position()
		if r.local.Flush(c); r.position() == p {
			return p, !p.IsZero()
		}
	}
	return p, false
}

func (r *room) position() Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.last
}

// Broadcast publishes msg, which is copied. Any goroutine may call it, including a loop's, and it
// does not block. Messages of one goroutine keep their order.
//
// nil means that msg is queued. ErrQueueFull, ErrClosed or a *SizeError: it was not published.
// Later losses are reported to Config.OnError.
func (o *Ordered) Broadcast(msg []byte) error { return o.publish(loop.Ref{}, msg, nil) }

// BroadcastExcept is Broadcast to all members but one of this process, usually the sender.
func (o *Ordered) BroadcastExcept(except loop.Ref, msg []byte) error {
	return o.publish(except, msg, nil)
}

// BroadcastThen is Broadcast with a result: done gets the message's position, or the error:
// ErrTimeout, ErrUncertain, ErrClosed, or the answer of Redis. It is called once, on a goroutine of
// the Hub, and must not block. It is not called if BroadcastThen returns an error.
func (o *Ordered) BroadcastThen(msg []byte, done func(p Position, err error)) error {
	return o.publish(loop.Ref{}, msg, done)
}

func (o *Ordered) publish(except loop.Ref, msg []byte, done func(Position, error)) error {
	out, err := o.hub.message(o.at, opOrdered, 0, msg)
	if err != nil {
		return err
	}
	out.done = done
	return o.hub.publishExcept(out, except)
}

// Who returns the users in the room, across all processes, not sorted. It queries Redis: never call
// it on a loop; see loop.Offload.
func (o *Ordered) Who(ctx context.Context) ([]string, error) {
	return onredis.Answer(ctx, func() ([]string, error) {
		client, err := o.hub.master(o.at.bucket)
		if err != nil {
			return nil, err
		}
		return client.HKeys(ctx, o.hub.keys.users(o.at)).Result()
	})
}

// Count returns how many users are in the room, across all processes. It queries Redis, as Who
// does.
func (o *Ordered) Count(ctx context.Context) (int, error) {
	n, err := onredis.Answer(ctx, func() (int64, error) {
		client, err := o.hub.master(o.at.bucket)
		if err != nil {
			return 0, err
		}
		return client.HLen(ctx, o.hub.keys.users(o.at)).Result()
	})
	return int(n), err
}
