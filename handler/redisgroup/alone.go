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

// divide sends again, for one room each, what was refused for many, and returns all segments as they
// are then. What was overtaken by a later message of its room is not sent: it would be out of order.
func (l *link) divide(all []*segment) []*segment {
	var divided, again []*segment
	for i, s := range all {
		if s.op == opPlain || !keyDenied(s.err) {
			if s.err == nil {
				delete(l.alone, s.items[0].channel) // it is allowed now
			}
			divided = append(divided, s)
			continue
		}
		parts := s.rooms()
		divided = append(divided, parts...)
		for _, part := range parts {
			switch {
			case len(parts) == 1:
				l.alone.learn(part.items[0].channel, part.err)
			case !part.overtaken(all[i+1:]):
				again = append(again, part)
			}
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

// overtaken reports whether one of later, which was run, is about the same room.
func (s *segment) overtaken(later []*segment) bool {
	return slices.ContainsFunc(later, func(l *segment) bool {
		return l.err == nil && slices.ContainsFunc(l.items, func(o *outgoing) bool {
			return o.channel == s.items[0].channel
		})
	})
}
