package redisgroup

import (
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxMissed is how many entries of each room a question asks for.
const maxMissed = 256

// missedArgs are those of catchup.lua for rooms that have missed something. It leaves out of s
// those that cannot ask now.
func (h *Hub) missedArgs(s *segment) (keys []string, args []any) {
	s.items = slices.DeleteFunc(s.items, func(o *outgoing) (ok bool) {
		o.from, ok = o.room.beginAsking()
		return !ok
	})
	args = append([]any{maxMissed, maxBatchBytes}, h.streamArgs()...)
	for _, o := range s.items {
		keys, args = append(keys, o.key), append(args, o.from.String())
	}
	return keys, args
}

// settleRooms tells each room what it has missed: nothing, if the answer does not mention it. An
// answer is {place, entries, id of the last}, or {place} of one that has to ask again.
func settleRooms(s *segment) error {
	answers, err := s.cmd.Slice()
	if err != nil {
		return errors.Join(errAnswer, err)
	}
	missed := make(map[int][]any)
	for _, a := range answers {
		fields, _ := a.([]any)
		if len(fields) != 1 && len(fields) != 3 {
			return errAnswer
		}
		n, _ := fields[0].(int64)
		missed[int(n)-1] = fields
	}
	for i, o := range s.items {
		fields := missed[i]
		if len(fields) < 3 {
			o.room.asked(o.from, []Entry{{Position: o.from}}, o.from, fields == nil)
			continue
		}
		got, err := parseEntries(o.name, fields[1])
		if err != nil {
			return err
		}
		end, err := positionOf(fields[2])
		if err != nil {
			return err
		}
		for i, e := range got {
			if e.Position != o.from {
				got[i].msg = o.room.hub.form(e)
			}
		}
		o.room.asked(o.from, got, end, len(got) < maxMissed)
	}
	return nil
}

func positionOf(id any) (Position, error) {
	text, _ := id.(string)
	return ParsePosition(text)
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
	return append([]any{since, j.from.History, h.cfg.MaxReplay}, h.streamArgs()...)
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
	end, err := positionOf(raw[2])
	if err != nil {
		return err
	}
	a := Arrival{}
	users, _ := raw[1].([]any)
	for _, u := range users {
		name, _ := u.(string)
		a.Who = append(a.Who, name)
	}
	got, a.Gap = j.missing(got, end, raw[3] == int64(1))
	var replay [][]byte
	for _, e := range got {
		replay = j.room.hub.replayed(replay, e)
	}
	j.ready(a, replay, end)
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
