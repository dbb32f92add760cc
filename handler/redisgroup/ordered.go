package redisgroup

import (
	"context"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// An Ordered is a room in which each member receives all messages of all processes once, in one
// order. The messages are numbered as in a Redis stream, which is also the room's history. A
// process that loses its connection to Redis catches up; if it cannot, Config.OnGap reports a gap
// to members.
//
// The presence of the room is the set of its members' users (see Hub.Bind), in all processes.
type Ordered struct{ handle }

// JoinFrom reads history from Redis. Then, in one turn of c's loop, it makes c a member, calls
// then, and sends c the history, formatted by Config.Form; all later entries follow. c gets each
// entry once and misses none, unless Arrival.Gap reports it. If JoinFrom fails, it calls then with
// Arrival.Err, and c is no member. Has returns false until c is a member. A handler that needs it
// to be true calls PauseRead before JoinFrom, and ResumeRead in then. then is not called once c has
// closed or left.
//
// JoinFrom must be called on c's loop. It returns false, and does not call then, if c is already a
// member, is joining, or is closed, or if the Hub is closed. Leave also cancels a pending JoinFrom.
// JoinFrom panics if then is nil.
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

// Position returns the position of the last entry that c has got; it first sends c the entries that
// are on their way. Use it in the Save method of a loop.Saver: in the next process, Accept passes
// it to JoinFrom as From.Since, and c misses nothing. A user that is bound to c there within a
// second has not left the room. While JoinFrom is pending, Position returns From.Since. It returns
// false if c is neither a member nor joining, or if the room's position is not known yet. It must
// be called on c's loop.
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

// Broadcast publishes msg, which it copies. Any goroutine may call it, including a loop's. It does
// not wait. Messages of one goroutine keep their order.
//
// nil means that the message was queued. After ErrQueueFull, ErrClosed or a *SizeError, the message
// was not published. Config.OnError gets later losses.
func (o *Ordered) Broadcast(msg []byte) error { return o.publish(loop.Ref{}, msg, nil) }

// BroadcastExcept is like Broadcast but skips one member in this process, usually the sender. That
// member may get the message after all if Redis takes longer than twice Config.PublishTimeout.
func (o *Ordered) BroadcastExcept(except loop.Ref, msg []byte) error {
	return o.publish(except, msg, nil)
}

// BroadcastThen is like Broadcast but reports the result. It calls done once, with the message's
// position or with the reason for which it has none: ErrTimeout, ErrUncertain, ErrClosed, or the
// error of Redis. done runs on a goroutine of the Hub and must not block. It is not called if
// BroadcastThen returns an error.
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

// Who returns the users in the room, in all processes, not sorted. It queries Redis: never call it
// on a loop; see loop.Offload.
func (o *Ordered) Who(ctx context.Context) ([]string, error) {
	return onredis.Answer(ctx, func() ([]string, error) {
		client, err := o.hub.master(o.at.bucket)
		if err != nil {
			return nil, err
		}
		return client.HKeys(ctx, o.hub.keys.users(o.at)).Result()
	})
}

// Count returns the number of users in the room, in all processes. It queries Redis, as Who does.
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
