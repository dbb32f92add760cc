package redisgroup

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// From says how much of the past one who joins gets.
type From struct {
	Since   Position // all that follows it; or, if it is zero:
	History int      // that many messages, fewer if there are fewer
}

// An Arrival tells that a connection has joined, or why it has not.
type Arrival struct {
	Position Position // of the last entry before what it will get from now on, past included
	Replay   int      // entries of the past that it gets now
	Gap      *Gap     // not nil: not all of them are there any more
	Who      []string // the users in the room at Position, not sorted
	Err      error    // not nil: it has not joined, as Redis is away or denies it, or the Hub was closed
}

// maxJoinTries is how often the past is read for one who joins a room that is too fast.
const maxJoinTries = 5

// A joining is one who has asked for the past and is not a member yet.
type joining struct {
	room  *room
	ref   loop.Ref
	from  From
	then  func(c *loop.Conn, a Arrival)
	until time.Time

	gone atomic.Bool // it has left, or closed

	// Guarded by the room's lock.
	isRead bool // the past was read; the rest is what it was
	fired  bool
	tries  int      // that came too late
	gaps   int      // order.gaps before
	at     Position // order.last before
	back   int      // not 0: the stream has gone back, and this barrier must have settled
	upTo   Position
	replay [][]byte
	arrive Arrival
}

// begin keeps what is delivered from now on for j. c's loop calls it.
func (r *room) begin(j *joining) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if o.joins == nil {
		o.joins = make(map[*joining]struct{})
	}
	if len(o.joins) == 0 {
		o.tail, o.tailBytes, o.tailFrom = nil, 0, o.last
	}
	o.joins[j] = struct{}{}
	r.readFor(j)
}

// readFor has the past read for j. r.mu is held.
func (r *room) readFor(j *joining) {
	j.isRead, j.fired, j.gaps, j.at = false, false, r.order.gaps, r.order.last
	if err := r.hub.asking.add(&outgoing{place: r.place, op: opHistory, join: j, deadline: j.until}); err != nil {
		r.refuse(j, err)
	}
}

// ready is told what was read for j.
func (j *joining) ready(a Arrival, replay [][]byte, end Position) {
	r := j.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.fired { // it was refused meanwhile
		return
	}
	j.arrive, j.replay, j.upTo, j.isRead = a, replay, end, true
	if j.back == 0 && (end.Compare(j.from.Since) < 0 || end.Compare(j.at) < 0) {
		j.back = r.renew()
	}
	r.checkJoins()
}

func (j *joining) refuse(err error) {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	j.room.refuse(j, err)
}

// refuse tells j that it cannot join. r.mu is held.
func (r *room) refuse(j *joining, err error) {
	if !j.fired {
		j.isRead, j.fired, j.arrive = true, true, Arrival{Err: err}
		r.fire(j)
	}
}

// refuseAll is what becomes of those who are joining when the Hub has ended.
func (r *room) refuseAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j := range r.order.joins {
		r.refuse(j, ErrClosed)
	}
}

// giveUp ends a joining: it has left. r.mu is not held.
func (r *room) giveUp(j *joining) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j.gone.Store(true)
	r.end(j)
}

// end forgets j, and with the last one the tail. r.mu is held.
func (r *room) end(j *joining) {
	o := &r.order
	delete(o.joins, j)
	if len(o.joins) == 0 {
		o.joins, o.tail, o.tailBytes = nil, nil, 0
	}
}

// keep adds an entry to the tail. The oldest are dropped if they are too much: who needs them reads
// again. r.mu is held.
func (r *room) keep(e Entry) {
	o := &r.order
	o.tail = append(o.tail, e)
	o.tailBytes += e.kept()
	for o.tailBytes > r.hub.cfg.MaxReplay {
		o.tailFrom = o.tail[0].Position
		o.tailBytes -= o.tail[0].kept()
		o.tail = o.tail[1:]
	}
}

// after returns the tail after p, and whether nothing is missing between. r.mu is held.
func (o *order) after(p Position) ([]Entry, bool) {
	if p == o.tailFrom {
		return o.tail, true
	}
	if p.IsZero() && o.emptied {
		return nil, true
	}
	i := slices.IndexFunc(o.tail, func(e Entry) bool { return e.Position == p })
	if i < 0 {
		return nil, false
	}
	return o.tail[i+1:], true
}

// checkJoins lets those join for whom the room is subscribed, and has come far enough. r.mu is
// held.
func (r *room) checkJoins() {
	o := &r.order
	for j := range o.joins {
		if !j.isRead || j.fired || !o.known || !o.subscribed || j.back > o.settled {
			continue
		}
		if j.arrive.Err != nil || j.gaps != o.gaps || o.last.Compare(j.upTo) >= 0 {
			j.fired = true
			r.fire(j)
		}
	}
}

// fire has j join on its loop. One who has closed is forgotten by leaveAll.
func (r *room) fire(j *joining) {
	_ = j.ref.TellEventually(func(c *loop.Conn) { r.arrived(c, j) })
}

// arrived makes c a member, replays and goes live, in one turn of c's loop. What was posted before
// does not reach it, and what is posted from now on comes later.
func (r *room) arrived(c *loop.Conn, j *joining) {
	m := membershipOf(c)
	r.mu.Lock()
	o := &r.order
	if j.gone.Load() {
		r.mu.Unlock()
		return
	}
	a := j.arrive
	var tail []Entry
	if a.Err == nil {
		var ok bool
		if tail, ok = o.after(j.upTo); !ok || j.gaps != o.gaps {
			r.tryAgain(j)
			r.mu.Unlock()
			return
		}
		tail = slices.Clone(tail)
		a.Position = o.last
		r.local.Join(c)
	}
	r.end(j)
	r.mu.Unlock()
	if a.Err != nil {
		delete(m.rooms, r)
		r.hub.release(r)
		j.then(c, a)
		return
	}
	m.rooms[r] = nil
	replay := j.replay
	for _, e := range tail {
		a.Who = e.change(a.Who)
		if e.Position.Compare(j.from.Since) > 0 {
			replay = r.hub.replayed(replay, e)
		}
	}
	a.Replay = len(replay)
	r.present(m, 1) // before then, which may bind c to another user, or leave
	j.then(c, a)
	for _, msg := range replay {
		if _, member := m.rooms[r]; !member || c.Send(msg) != nil {
			return
		}
	}
}

// tryAgain reads the past once more, as the room went on too fast or has a gap. r.mu is held.
func (r *room) tryAgain(j *joining) {
	if j.gaps == r.order.gaps {
		j.tries++
	}
	if j.tries < maxJoinTries {
		r.readFor(j)
		return
	}
	// The room is faster than this server can read: it gets what there is, and is told.
	o := &r.order
	j.arrive.Gap = &Gap{Room: r.name, From: j.upTo, To: o.last, Why: "the room is too fast"}
	j.upTo, j.replay, j.gaps, j.fired = o.last, nil, o.gaps, true
	if len(o.tail) == 0 {
		o.tailFrom = o.last
	}
	r.fire(j)
}
