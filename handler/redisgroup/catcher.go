package redisgroup

import (
	"context"
	"math"
	"slices"
	"time"

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
	alone loners
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
	all := k.questions(rooms)
	if k.link.client == nil {
		for _, q := range all {
			k.again(q)
		}
		return errAnswer
	}
	k.exchange(all)
	for _, q := range k.divide(all) {
		e := q.cmd.Err()
		switch {
		case e == nil:
			e = q.answer()
		case keyDenied(e):
			k.later(q)
			continue
		}
		if e != nil {
			err = e
			k.link.learn(e)
			k.again(q)
		}
	}
	return err
}

func (k *catcher) exchange(all []*question) {
	pipe := k.link.client.Pipeline()
	for _, q := range all {
		q.cmd = catchUpScript.EvalSha(context.Background(), pipe, q.keys, q.args...)
	}
	_, _ = pipe.Exec(context.Background())
}

// divide asks again, for one room each, what was refused for many, and returns all questions as they
// are then.
func (k *catcher) divide(all []*question) (divided []*question) {
	var again []*question
	for _, q := range all {
		if len(q.rooms) == 1 {
			k.alone.learn(q.rooms[0].channel, q.cmd.Err())
		}
		if !keyDenied(q.cmd.Err()) || len(q.rooms) == 1 {
			divided = append(divided, q)
			continue
		}
		head := len(q.args) - len(q.rooms)
		for i, r := range q.rooms {
			args := append(slices.Clone(q.args[:head]), q.args[head+i])
			again = append(again, &question{rooms: []*room{r}, from: q.from[i : i+1], keys: q.keys[i : i+1], args: args})
		}
	}
	if len(again) > 0 {
		k.exchange(again)
	}
	for _, q := range again {
		k.alone.learn(q.rooms[0].channel, q.cmd.Err())
	}
	return append(divided, again...)
}

// deniedAsk is when a room asks again that may not.
const deniedAsk = 5 * time.Second

// later has the room of a question that is denied ask again after a while, if it is still there.
func (k *catcher) later(q *question) {
	r := q.rooms[0]
	_, _ = k.link.hub.timers.AfterFunc(deniedAsk, func() {
		k.link.hub.ifThere(r, func() { k.again(q) })
	})
}

// questions divides rooms by bucket, and notes where each stands.
func (k *catcher) questions(rooms []*room) (all []*question) {
	open := make(map[lane]*question)
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
		at := k.alone.lane(r.place)
		q := open[at]
		if q == nil || len(q.rooms) == maxAsk {
			q = &question{args: r.hub.catchUpArgs(maxAskEntries)}
			open[at] = q
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
