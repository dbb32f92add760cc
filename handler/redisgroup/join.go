package redisgroup

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
	state      joinState
	tries      int      // that came too late
	gaps       int      // order.gaps when the past was asked for
	at         Position // order.last then
	generation int      // of the room, in which it joins at the earliest
	upTo       Position // of what was read; the rest is what it was
	replay     [][]byte
	arrive     Arrival
}

// A joinState says how far a joining is.
type joinState int

const (
	joinReading joinState = iota // the past is read
	joinRead                     // the room has to come as far
	joinFired                    // it joins on its loop, or is told that it cannot
)

// begin keeps what is delivered from now on for j. c's loop calls it.
func (r *room) begin(j *joining) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if len(o.joins) == 0 {
		o.joins, o.tailFrom = make(map[*joining]struct{}), o.last
	}
	o.joins[j] = struct{}{}
	r.readFor(j)
}

// readFor has the past read for j. r.mu is held.
func (r *room) readFor(j *joining) {
	j.state, j.gaps, j.at = joinReading, r.order.gaps, r.order.last
	if err := r.hub.ask(&outgoing{place: r.place, op: opAsk, ask: j, deadline: j.until}); err != nil {
		r.refuse(j, err)
	}
}

func (j *joining) void() bool { return j.gone.Load() }

func (j *joining) command() (*script, []string, []any) {
	since, h := "", j.room.hub
	if !j.from.Since.IsZero() {
		since = j.from.Since.String()
	}
	keys := []string{j.room.key, h.keys.users(j.room.place)}
	return historyScript, keys, append([]any{since, j.from.History, h.cfg.MaxReplay}, h.streamArgs()...)
}

// answered takes the past. It is asked for again until that works, unless Redis denies it.
func (j *joining) answered(cmd *redis.Cmd) error {
	r := j.room
	texts, err := cmd.StringSlice()
	switch {
	case isDenied(err):
		j.refuse(err)
		return nil
	case err != nil:
		return err
	case len(texts) < 3:
		return errAnswer
	}
	end, err := ParsePosition(texts[0])
	users, e := strconv.Atoi(texts[2])
	if err != nil || e != nil || len(texts) < 3+users {
		return errAnswer
	}
	a := Arrival{Who: texts[3 : 3+users : 3+users]}
	got, err := parseEntries(r.name, texts[3+users:])
	if err != nil {
		return err
	}
	slices.Reverse(got)
	got, a.Gap = j.missing(got, end, texts[1] == "1")
	var replay [][]byte
	for _, e := range got {
		replay = r.hub.replayed(replay, e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.state != joinReading { // it was refused meanwhile
		return nil
	}
	j.arrive, j.replay, j.upTo, j.state = a, replay, end, joinRead
	if j.generation == 0 && (end.Compare(j.from.Since) < 0 || end.Compare(j.at) < 0) {
		j.generation = r.order.generation + 1
	}
	r.checkJoins()
	return nil
}

// missing returns the entries without the one that j has already, and what is missing after that.
func (j *joining) missing(got []Entry, end Position, cut bool) ([]Entry, *Gap) {
	since := j.from.Since
	if since.IsZero() {
		return got, nil
	}
	if len(got) > 0 && got[0].Position == since {
		return got[1:], nil
	}
	g := &Gap{Room: j.room.name, From: since, To: end, Why: "Redis does not have them any more"}
	if cut {
		g.Why = "they are too much to be sent at once"
	}
	if len(got) > 0 {
		g.To = got[0].Position
	}
	return got, g
}

// replayed adds to msgs what one who joins gets of e.
func (h *Hub) replayed(msgs [][]byte, e Entry) [][]byte {
	e.Replayed = true
	if msg := h.form(e); msg != nil {
		msgs = append(msgs, msg)
	}
	return msgs
}

func (j *joining) refuse(err error) {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	j.room.refuse(j, err)
}

// refuse tells j that it cannot join. r.mu is held.
func (r *room) refuse(j *joining, err error) {
	if j.state != joinFired {
		j.arrive = Arrival{Err: err}
		r.fire(j)
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
	i := 0
	for i < len(o.tail) && o.tail[i].Position.Compare(p) <= 0 {
		i++
	}
	return o.tail[i:], p.Compare(o.tailFrom) >= 0
}

// checkJoins lets those join for whom the room has come far enough. r.mu is held.
func (r *room) checkJoins() {
	o := &r.order
	if o.phase != live {
		return
	}
	behind := false
	for j := range o.joins {
		switch {
		case j.state != joinRead:
		case j.gaps != o.gaps:
			r.readFor(j)
		case j.generation > o.generation:
			behind = true
		case o.last.Compare(j.upTo) >= 0:
			r.fire(j)
		}
	}
	if behind {
		r.renew()
	}
}

// fire has j join on its loop. One who has closed is forgotten by leaveAll. r.mu is held.
func (r *room) fire(j *joining) {
	j.state = joinFired
	_ = j.ref.TellEventually(func(c *loop.Conn) { r.arrived(c, j) })
}

// arrived makes c a member, replays and goes live, in one turn of c's loop. What was posted before
// does not reach it, and what is posted from now on comes later.
func (r *room) arrived(c *loop.Conn, j *joining) {
	m := r.hub.join(c)
	r.mu.Lock()
	if j.gone.Load() {
		r.mu.Unlock()
		return
	}
	a, replay := j.arrive, j.replay
	var tail []Entry
	if a.Err == nil {
		o := &r.order
		got, whole := o.after(j.upTo)
		if tail = slices.Clone(got); !whole || j.gaps != o.gaps {
			if j.tries++; j.tries < maxJoinTries {
				r.readFor(j)
				r.mu.Unlock()
				return
			}
			// It gets what follows, and is told.
			a.Gap = &Gap{Room: r.name, From: j.upTo, To: o.last, Why: "the room is too fast"}
			tail, replay = nil, nil
		}
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
	for _, e := range tail {
		a.Who = e.change(a.Who)
		if e.Position.Compare(j.from.Since) > 0 {
			replay = r.hub.replayed(replay, e)
		}
	}
	a.Replay = len(replay)
	r.change(m.user, 1) // before then, which may bind c to another user, or leave
	j.then(c, a)
	for _, msg := range replay {
		if _, member := m.rooms[r]; !member || c.Send(msg) != nil {
			return
		}
	}
}
