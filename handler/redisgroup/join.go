package redisgroup

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing"
)

// From selects how much history a joining member receives.
type From struct {
	Since   Position // all entries after it; if it is zero:
	History int      // the last History messages, or fewer if the room has fewer
}

// An Arrival reports that a connection has joined, or why it has not.
type Arrival struct {
	Position Position // the room's at the join: history ends there, and later entries come live
	Replay   int      // the number of history entries that it gets now
	Who      []string // the users in the room at Position, not sorted

	// Gap is not nil if it misses entries after From.Since, as they no longer exist or exceed
	// Config.MaxReplay, or entries that came too fast while it was joining.
	Gap *Gap

	Err error // not nil if it has not joined: Redis unreachable or refusing, or Hub closed
}

// maxJoinTries is how often history is read for a joining connection if the room is too fast.
const maxJoinTries = 5

// A joining is a connection that waits for history and is not a member yet.
type joining struct {
	room *room
	ref  loop.Ref
	from From
	then func(c *loop.Conn, a Arrival)

	gone atomic.Bool // it has joined or given up

	// Guarded by the room's lock.
	state  joinState
	limit  timing.Job // ends it after Config.PublishTimeout
	tries  int        // reads that were too late
	at     Position   // the room's position when the read began
	past   []Entry
	arrive Arrival // Position is the end of the stream when history was read
}

// A joinState is the progress of a joining.
type joinState int

const (
	joinReading joinState = iota // history is being read
	joinRead                     // the room has not reached the end of the history yet
	joinFired                    // it joins on its loop, or gets an error
)

// begin starts to keep delivered entries for j. It is called on c's loop.
func (r *room) begin(j *joining) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if len(o.joins) == 0 {
		o.joins = make(map[*joining]struct{})
		o.cut(o.last)
	}
	o.joins[j] = struct{}{}
	j.limit = r.hub.timers.AfterFunc(r.hub.cfg.PublishTimeout, func() { j.refuse(ErrTimeout) })
	r.readRoster()
	r.readFor(j)
}

// readFor requests the history for j. r.mu is held.
func (r *room) readFor(j *joining) {
	j.state, j.at = joinReading, r.order.last
	if err := r.hub.querySenders[r.bucket].add(&request{place: r.place, op: opQuery, query: j}); err != nil {
		r.refuse(j, err)
	}
}

func (j *joining) void() bool { return j.gone.Load() }

func (j *joining) command() (*onredis.Script, []string, []any) {
	since, h := "", j.room.hub
	if !j.from.Since.IsZero() {
		since = j.from.Since.String()
	}
	args := []any{since, j.from.History, h.cfg.MaxReplay}
	return historyScript, []string{j.room.key}, append(args, h.streamArgs()...)
}

// answered processes the history. It reads again until that succeeds, unless Redis denies it.
func (j *joining) answered(cmd *redis.Cmd) error {
	p, err := parsePast(j.room.name, cmd)
	if onredis.Denied(err) {
		j.refuse(err)
		return nil
	}
	if err != nil {
		return err
	}
	r := j.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.state != joinReading { // it was refused meanwhile
		return nil
	}
	j.arrive = Arrival{Position: p.end}
	j.past, j.arrive.Gap = j.missing(p)
	j.state = joinRead
	if p.end.Compare(j.at) < 0 || p.end.Compare(j.from.Since) < 0 && p.end != r.order.wentBack {
		r.order.wentBack = p.end
		r.renew()
	}
	r.checkJoins()
	return nil
}

// missing returns the entries that j does not have yet, and the gap after them, if any.
func (j *joining) missing(p past) ([]Entry, *Gap) {
	since, got := j.from.Since, p.entries
	if since.IsZero() {
		return got, nil
	}
	if len(got) > 0 && got[0].Position == since {
		return got[1:], nil
	}
	g := &Gap{Room: j.room.name, From: since, To: p.end, Why: "Redis does not have them any more"}
	if p.cut {
		g.Why = "they are too much to be sent at once"
	}
	if len(got) > 0 {
		g.To = got[0].Position
	}
	return got, g
}

func (j *joining) refuse(err error) {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	j.room.refuse(j, err)
}

// refuse reports to j that it cannot join. r.mu is held.
func (r *room) refuse(j *joining, err error) {
	if j.state != joinFired {
		j.arrive = Arrival{Err: r.hub.explain(err)}
		r.fire(j)
	}
}

// refuseAll refuses all joining connections.
func (r *room) refuseAll(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j := range r.order.joins {
		r.refuse(j, err)
	}
}

// deny reports to Config.OnError and to all joining connections that the room cannot be subscribed
// to.
func (r *room) deny(err error) {
	e := &SubscribeError{Room: r.name, Err: err}
	r.refuseAll(e)
	r.hub.report(e)
}

// end removes j, and the tail with the last joining. The room's lock is held.
func (o *order) end(j *joining) {
	j.gone.Store(true)
	j.limit.Stop()
	delete(o.joins, j)
	if len(o.joins) == 0 {
		o.joins = nil
		o.cut(o.last)
	}
}

// cut drops the tail up to p. A joining that has not reached p reads again.
func (o *order) cut(p Position) { o.tail, o.tailBytes, o.tailFrom = nil, 0, p }

// keep appends an entry to the tail, which is dropped if it gets too long. r.mu is held.
func (r *room) keep(e Entry) {
	o := &r.order
	o.tail = append(o.tail, e)
	if o.tailBytes += len(e.Data) + len(e.User) + 64; o.tailBytes > r.hub.cfg.MaxReplay {
		o.cut(e.Position)
	}
}

// after returns the tail after p, and whether it is complete. r.mu is held.
func (o *order) after(p Position) ([]Entry, bool) {
	i := 0
	for i < len(o.tail) && o.tail[i].Position.Compare(p) <= 0 {
		i++
	}
	return o.tail[i:], p.Compare(o.tailFrom) >= 0
}

// checkJoins fires the joinings whose history the room has reached. r.mu is held.
func (r *room) checkJoins() {
	o := &r.order
	if o.phase != live || !o.complete() {
		return
	}
	for j := range o.joins {
		if j.state == joinRead && o.last.Compare(j.arrive.Position) >= 0 {
			r.fire(j)
		}
	}
}

// fire runs the join on j's loop. leaveAll removes a closed connection. r.mu is held.
func (r *room) fire(j *joining) {
	j.state = joinFired
	j.ref.Tell(func(c *loop.Conn) { r.arrived(c, j) })
}

// arrived makes c a member, sends the history and goes live, in one turn of c's loop. Entries
// posted before do not reach c; entries posted later come after the history.
func (r *room) arrived(c *loop.Conn, j *joining) {
	h := r.hub
	r.mu.Lock()
	o := &r.order
	if _, joins := o.joins[j]; !joins || j.state != joinFired { // it has left, or reads again
		r.mu.Unlock()
		return
	}
	if j.arrive.Err == nil && !o.complete() { // the users were lost meanwhile
		j.state = joinRead
		r.readRoster()
		r.mu.Unlock()
		return
	}
	a, past := j.arrive, j.past
	var tail []Entry
	if a.Err == nil {
		var whole bool
		if tail, whole = o.after(a.Position); !whole {
			if j.tries++; j.tries < maxJoinTries {
				r.readFor(j)
				r.mu.Unlock()
				return
			}
			// It gets what follows, and the gap.
			a.Gap = &Gap{Room: r.name, From: a.Position, To: o.last, Why: "the room is too fast"}
			tail, past = nil, nil
		}
		a.Position, a.Who = o.last, o.roster.list()
		r.local.Join(c)
	}
	o.end(j)
	r.mu.Unlock()
	m := h.join(c)
	if a.Err != nil {
		delete(m.rooms, r)
		h.release(r)
		j.then(c, a)
		return
	}
	m.rooms[r] = nil
	for _, e := range tail {
		if e.Position.Compare(j.from.Since) > 0 {
			past = append(past, e)
		}
	}
	var replay [][]byte
	for _, e := range past {
		e.Replayed = true
		if msg := h.form(e); msg != nil {
			replay = append(replay, msg)
		}
	}
	a.Replay = len(replay)
	r.change(m.user, 1) // before then, which may bind c to another user, or leave
	j.then(c, a)
	for _, msg := range replay {
		if joining, in := m.rooms[r]; !in || joining != nil || c.Send(msg) != nil {
			return
		}
	}
}
