package redisgroup

import (
	"slices"
	"strings"
)

// A command for many rooms is refused whole if the user has no right to one of them. So it is sent
// again, for one room each, and the rooms that are denied have commands of their own from then on.

// loners are the channels of rooms whose keys are denied.
type loners map[string]struct{}

// maxLoners is how many are known. When there are more, all are found again.
const maxLoners = 4096

// A lane is what may be in one command: rooms of one bucket, or one that is denied.
type lane struct {
	bucket int
	alone  string
}

func (l loners) lane(p place) lane {
	if _, ok := l[p.channel]; ok {
		return lane{p.bucket, p.channel}
	}
	return lane{bucket: p.bucket}
}

// learn notes what was answered to a command for one room.
func (l *loners) learn(channel string, err error) {
	switch {
	case !keyDenied(err):
		delete(*l, channel)
	case len(*l) == maxLoners || *l == nil:
		*l = loners{channel: {}}
	default:
		(*l)[channel] = struct{}{}
	}
}

// keyDenied reports whether the user has no right to a key of a script. Nothing of it was run then,
// as may be if a command in it is denied.
func keyDenied(err error) bool { return isDenied(err) && !strings.Contains(err.Error(), "script") }

// waves divides segments into what may go out together. One that is for several rooms may be refused
// because of another's, and is then sent again: so what follows in its rooms waits until that is
// known, or it would overtake it.
func waves(all []*segment) (divided [][]*segment) {
	var wave, several []*segment
	var rooms map[string]struct{} // of several, once that was needed
	for _, s := range all {
		if s.op != opPlain && len(several) > 0 {
			rooms = roomsOf(several, rooms)
			several = several[:0]
		}
		if s.op != opPlain && s.isIn(rooms) {
			divided = append(divided, wave)
			wave, rooms = nil, nil
		}
		if wave = append(wave, s); s.forSeveral() {
			several = append(several, s)
		}
	}
	return append(divided, wave)
}

// roomsOf adds the rooms of segments to rooms.
func roomsOf(all []*segment, rooms map[string]struct{}) map[string]struct{} {
	if rooms == nil {
		rooms = make(map[string]struct{})
	}
	for _, s := range all {
		for _, o := range s.items {
			rooms[o.channel] = struct{}{}
		}
	}
	return rooms
}

// isIn reports whether s is for one of rooms.
func (s *segment) isIn(rooms map[string]struct{}) bool {
	return len(rooms) > 0 && slices.ContainsFunc(s.items, func(o *outgoing) bool {
		_, in := rooms[o.channel]
		return in
	})
}

// forSeveral reports whether s is a script for several rooms.
func (s *segment) forSeveral() bool {
	return s.op != opPlain && slices.ContainsFunc(s.items, func(o *outgoing) bool { return o.channel != s.items[0].channel })
}

// divide sends again, for one room each, what was refused for many, and returns all segments as they
// are then.
func (l *link) divide(all []*segment) []*segment {
	var divided, again []*segment
	for _, s := range all {
		if s.op == opPlain || !keyDenied(s.err) {
			if s.err == nil {
				delete(l.alone, s.items[0].channel) // it is allowed now
			}
			divided = append(divided, s)
			continue
		}
		parts := s.rooms()
		divided = append(divided, parts...)
		if len(parts) > 1 {
			again = append(again, parts...)
		} else {
			l.alone.learn(parts[0].items[0].channel, parts[0].err)
		}
	}
	if len(again) > 0 {
		l.exchange(again)
	}
	for _, s := range again {
		l.alone.learn(s.items[0].channel, s.err)
	}
	return divided
}

// rooms divides s by room.
func (s *segment) rooms() (parts []*segment) {
	open := make(map[string]*segment)
	for _, o := range s.items {
		part := open[o.channel]
		if part == nil {
			part = &segment{op: s.op, cmd: s.cmd, node: s.node, err: s.err}
			open[o.channel] = part
			parts = append(parts, part)
		}
		part.items = append(part.items, o)
	}
	return parts
}
