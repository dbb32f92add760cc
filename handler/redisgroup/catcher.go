package redisgroup

import (
	"context"
	"math"

	"github.com/redis/go-redis/v9"
)

// Bounds of one question.
const (
	maxAsk        = 256 // rooms
	maxAskEntries = 256 // of each room
)

// A catcher reads what rooms have missed: many of them with one script, so that ten thousand are
// caught up with after a lost connection as fast as Redis can look at them.
type catcher struct {
	link *link
	*worklist[*room]
}

func (k *catcher) init(l *link) { k.link, k.worklist = l, newWorklist[*room](nil) }

func (k *catcher) run() {
	var delays backoff
	for {
		select {
		case <-k.link.hub.ctx.Done():
			return
		case <-k.wake:
		}
		if err := k.ask(k.take(math.MaxInt)); err == nil {
			delays.reset()
		} else if !k.link.hub.topo.pause(delays.next()) {
			return
		}
	}
}

// A question is one call of the script.
type question struct {
	rooms []*room
	from  []Position
	keys  []string
	args  []any
	cmd   *redis.Cmd
}

// ask asks for all rooms in one round trip.
func (k *catcher) ask(rooms []*room) (err error) {
	if len(rooms) == 0 {
		return nil
	}
	all := questions(rooms)
	if k.link.client == nil {
		for _, q := range all {
			k.again(q)
		}
		return errAnswer
	}
	pipe := k.link.client.Pipeline()
	for _, q := range all {
		q.cmd = catchUpScript.EvalSha(context.Background(), pipe, q.keys, q.args...)
	}
	_, _ = pipe.Exec(context.Background())
	for _, q := range all {
		e := q.cmd.Err()
		if e == nil {
			e = q.answer()
		}
		if e != nil {
			err = e
			k.link.learn(e)
			k.again(q)
		}
	}
	return err
}

// questions divides rooms by bucket, and notes where each stands.
func questions(rooms []*room) (all []*question) {
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
		q.keys, q.args = append(q.keys, r.channel), append(q.args, from.String())
	}
	return all
}

// catchUpArgs are the first arguments of catchup.lua.
func (h *Hub) catchUpArgs(entries int) []any {
	return []any{entries, maxBatchBytes, h.topo.command(), h.cfg.HistoryTime.Milliseconds()}
}

// again has the rooms of a question ask again, where they are now.
func (k *catcher) again(q *question) {
	for _, r := range q.rooms {
		k.link.hub.topo.link(r.bucket).past.add(r)
	}
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
