package redisgroup

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxAsk        = 256 // rooms of one question
	maxAskEntries = 256 // of each room
	maxReads      = 64  // for how many the past is read at once: their answers are in memory together
)

// A reader reads from one server what rooms have missed, and the past for those who join: many with
// one script, so that ten thousand rooms are caught up with after a lost connection as fast as
// Redis can look at them.
type reader struct {
	link *link
	wake chan struct{}

	mu    sync.Mutex
	rooms map[*room]struct{}
	joins map[*joining]struct{}
}

func (k *reader) init(l *link) {
	k.link, k.wake = l, make(chan struct{}, 1)
	k.rooms, k.joins = make(map[*room]struct{}), make(map[*joining]struct{})
}

// add reads what r has missed, soon.
func (k *reader) add(r *room) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rooms[r] = struct{}{}
	signal(k.wake)
}

// join reads the past for j, soon.
func (k *reader) join(j *joining) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.joins[j] = struct{}{}
	signal(k.wake)
}

// leave forgets j.
func (k *reader) leave(j *joining) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.joins, j)
}

func (k *reader) take() (rooms []*room, joins []*joining) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.rooms {
		rooms = append(rooms, r)
	}
	clear(k.rooms)
	for j := range k.joins {
		if len(joins) == maxReads {
			signal(k.wake)
			break
		}
		delete(k.joins, j)
		joins = append(joins, j)
	}
	return rooms, joins
}

// run reads until the Hub ends.
func (k *reader) run() {
	var delays backoff
	for {
		select {
		case <-k.link.hub.ctx.Done():
			return
		case <-k.wake:
		}
		if k.read(k.take()) == nil {
			delays.reset()
			continue
		}
		k.expire()
		if !k.link.hub.pause(delays.next()) {
			return
		}
	}
}

// errAway is why those have not joined who waited behind others that Redis did not answer.
var errAway = errors.New("redisgroup: Redis does not answer")

// expire refuses those who have waited for too long.
func (k *reader) expire() {
	k.mu.Lock()
	var late []*joining
	for j := range k.joins {
		if time.Now().After(j.until) {
			late = append(late, j)
			delete(k.joins, j)
		}
	}
	k.mu.Unlock()
	for _, j := range late {
		j.refuse(errors.Join(ErrTimeout, errAway))
	}
}

// A question is one call of catchup.lua.
type question struct {
	rooms []*room
	from  []Position
	keys  []string
	args  []any
	cmd   *redis.Cmd
}

// read reads for all in one round trip. What fails is tried again where it is by then.
func (k *reader) read(rooms []*room, joins []*joining) (err error) {
	hub := k.link.hub
	questions := k.questions(rooms)
	cmds := make([]*redis.Cmd, len(joins))
	if k.link.client != nil {
		pipe := k.link.client.Pipeline()
		for _, q := range questions {
			q.cmd = queueScript(hub.ctx, pipe, catchUpScript, q.keys, q.args)
		}
		for i, j := range joins {
			cmds[i] = queueScript(hub.ctx, pipe, historyScript, []string{j.room.key, hub.keys.users(j.room.place)}, j.args())
		}
		_, _ = pipe.Exec(hub.ctx)
	}
	for _, q := range questions {
		e := errAway
		if q.cmd != nil {
			if e = q.cmd.Err(); e == nil {
				e = q.answer()
			}
		}
		if e != nil {
			err = e
			for _, r := range q.rooms {
				hub.servers.link(r.bucket).past.add(r)
			}
		}
	}
	for i, j := range joins {
		e := errAway
		if cmds[i] != nil {
			if e = cmds[i].Err(); e == nil {
				e = j.read(cmds[i])
			}
		}
		switch {
		case e == nil:
		case isDenied(e):
			j.refuse(e)
		case time.Now().After(j.until):
			err = e
			j.refuse(errors.Join(ErrTimeout, e))
		default:
			err = e
			j.again()
		}
	}
	if err != nil {
		k.link.learn(err)
	}
	return err
}

// questions divides rooms by bucket, and notes where each stands.
func (k *reader) questions(rooms []*room) (all []*question) {
	open := make(map[int]*question)
	for _, r := range rooms {
		r.mu.Lock()
		o := &r.order
		ok, from := o.subscribed && o.known, o.last
		o.dirty = o.dirty && !ok
		o.asking, o.asked = ok, o.renewals
		r.mu.Unlock()
		if !ok {
			continue // it asks when it is subscribed
		}
		q := open[r.bucket]
		if q == nil || len(q.rooms) == maxAsk {
			q = &question{args: r.hub.catchUpArgs(maxAskEntries)}
			open[r.bucket] = q
			all = append(all, q)
		}
		q.rooms, q.from = append(q.rooms, r), append(q.from, from)
		q.keys, q.args = append(q.keys, r.key), append(q.args, from.String())
	}
	return all
}

// catchUpArgs are the first arguments of catchup.lua.
func (h *Hub) catchUpArgs(entries int) []any {
	return append([]any{entries, maxBatchBytes}, h.streamArgs()...)
}

// answer tells each room what it missed; nothing, if the answer does not mention it.
func (q *question) answer() error {
	answers, err := q.cmd.Slice()
	if err != nil {
		return err
	}
	told := make([]bool, len(q.rooms))
	for _, a := range answers {
		i, what, rest := parseAnswer(a)
		if i < 0 || i >= len(q.rooms) {
			return errAnswer
		}
		r, from := q.rooms[i], q.from[i]
		told[i] = true
		if what == "later" {
			r.asked(from, []Entry{{Position: from}}, from, false)
			continue
		}
		got, end, err := r.parseGot(rest, from)
		if err != nil {
			return err
		}
		r.asked(from, got, end, len(got) < maxAskEntries)
	}
	for i, r := range q.rooms {
		if !told[i] {
			r.asked(q.from[i], []Entry{{Position: q.from[i]}}, q.from[i], true)
		}
	}
	return nil
}

// parseAnswer reads what catchup.lua says of a room: {place, what, ...}. The place is from 0 here,
// and -1 if it makes no sense.
func parseAnswer(a any) (place int, what string, rest []any) {
	fields, _ := a.([]any)
	if len(fields) < 2 {
		return -1, "", nil
	}
	n, _ := fields[0].(int64)
	what, _ = fields[1].(string)
	if what != "later" && len(fields) < 3 {
		return -1, "", nil
	}
	return int(n) - 1, what, fields[2:]
}

// parseGot reads entries, of which the room has the one at from, and where the stream ends.
func (r *room) parseGot(rest []any, from Position) (got []Entry, end Position, err error) {
	if len(rest) != 2 {
		return nil, end, errAnswer
	}
	if got, err = parseEntries(r.name, rest[0]); err != nil {
		return nil, end, err
	}
	for i, e := range got {
		if e.Position != from {
			got[i] = r.hub.formed(e)
		}
	}
	id, _ := rest[1].(string)
	end, err = ParsePosition(id)
	return got, end, err
}

// parseEntries reads entries of a stream as XRANGE returns them within a script: {id, {e, entry}}.
func parseEntries(room string, raw any) ([]Entry, error) {
	list, _ := raw.([]any)
	got := make([]Entry, 0, len(list))
	for _, x := range list {
		pair, _ := x.([]any)
		if len(pair) != 2 {
			return nil, errAnswer
		}
		id, _ := pair[0].(string)
		fields, _ := pair[1].([]any)
		if len(fields) != 2 {
			return nil, errAnswer
		}
		text, _ := fields[1].(string)
		e, ok := parseEntry(room, id, text)
		if !ok {
			return nil, errAnswer
		}
		got = append(got, e)
	}
	return got, nil
}

// args are the arguments of history.lua.
func (j *joining) args() []any {
	since, h := "", j.room.hub
	if !j.from.Since.IsZero() {
		since = j.from.Since.String()
	}
	return append([]any{since, j.from.History, h.cfg.MaxReplay, 1}, h.streamArgs()...)
}

// again reads the past for j once more, where its room is now, if it has not left.
func (j *joining) again() {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	if _, in := j.room.order.joins[j]; in && !j.fired {
		j.room.hub.servers.link(j.room.bucket).past.join(j)
	}
}

func (j *joining) refuse(err error) {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	j.room.refuse(j, err)
}

// read takes what history.lua says.
func (j *joining) read(cmd *redis.Cmd) error {
	raw, err := cmd.Slice()
	if err != nil || len(raw) != 4 {
		return errAnswer
	}
	got, err := parseEntries(j.room.name, raw[0])
	if err != nil {
		return err
	}
	slices.Reverse(got)
	id, _ := raw[2].(string)
	end, err := ParsePosition(id)
	if err != nil {
		return err
	}
	cut, _ := raw[3].(int64)
	a := Arrival{}
	users, _ := raw[1].([]any)
	for _, u := range users {
		name, _ := u.(string)
		a.Who = append(a.Who, name)
	}
	got, a.Gap = j.missing(got, end, cut == 1)
	var replay [][]byte
	for _, e := range got {
		replay = j.room.hub.replayed(replay, e)
	}
	r := j.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.fired { // it was refused meanwhile
		return nil
	}
	j.arrive, j.replay, j.upTo, j.ready = a, replay, end, true
	if j.back == 0 && (end.Compare(j.from.Since) < 0 || end.Compare(j.at) < 0) {
		j.back = r.renewSoon()
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
