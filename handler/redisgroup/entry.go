package redisgroup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Position is the place of an entry in an ordered room: an epoch, and the entry's number in it,
// starting at 1. A new epoch begins when numbers may have been lost: Redis was restarted, another
// server replaced it, or the room was deleted. The zero Position precedes all entries.
type Position struct{ Epoch, Number uint64 }

// String returns the position in the form that ParsePosition reads, which is also its ID in Redis.
func (p Position) String() string {
	return strconv.FormatUint(p.Epoch, 10) + "-" + strconv.FormatUint(p.Number, 10)
}

// IsZero reports whether p is the zero Position.
func (p Position) IsZero() bool { return p == Position{} }

// Compare returns -1, 0 or 1 if p is before, at or after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Number, q.Number))
}

// ParsePosition parses the result of Position.String.
func ParsePosition(s string) (p Position, err error) {
	epoch, number, ok := strings.Cut(s, "-")
	if ok {
		if p.Epoch, err = strconv.ParseUint(epoch, 10, 64); err == nil {
			p.Number, err = strconv.ParseUint(number, 10, 64)
		}
	}
	if !ok || err != nil {
		return Position{}, fmt.Errorf("redisgroup: %q is no position", s)
	}
	return p, nil
}

// follows reports whether p is the entry directly after q.
func (p Position) follows(q Position) bool {
	return p.Epoch == q.Epoch && p.Number == q.Number+1
}

// A Kind is the kind of an Entry.
type Kind byte

// Kinds of entries.
const (
	Message Kind = 'm' // a broadcast of Data
	Joined  Kind = 'j' // User's first connection has joined, in any process
	Left    Kind = 'l' // User's last connection has left

	// begun is the kind of the entry with number 0 that append.lua adds to an empty stream, and of
	// entries that other programs have added. It is internal.
	begun Kind = 'b'
)

// An Entry is an event in an ordered room.
type Entry struct {
	Room     string
	Position Position
	Kind     Kind
	User     string // for Joined and Left
	Data     []byte // for Message
	Replayed bool   // the entry is history, sent to a joining member

	msg []byte // what members get: the result of Config.Form

	node string // the publisher
	seq  uint64
}

// A Gap reports that entries of an ordered room are missing.
type Gap struct {
	Room     string
	From, To Position // the missing entries are after From and before To, as far as known
	Why      string
}

// Error implements error, so that a connection can be closed with a Gap.
func (g *Gap) Error() string {
	return fmt.Sprintf("redisgroup: room %q: entries between %v and %v are missing: %s", g.Room, g.From, g.To, g.Why)
}

// parseEntry parses an entry: its ID, and its text in the stream, see append.lua.
func parseEntry(room, id, text string) (e Entry, ok bool) {
	var err error
	e.Room, e.Kind = room, begun
	if e.Position, err = ParsePosition(id); err != nil {
		return e, false
	}
	head, data, _ := strings.Cut(text, "\n")
	f := strings.Split(head, " ")
	if len(f) != 3 || len(f[2]) != 1 {
		return e, true
	}
	node, seq, _ := strings.Cut(f[1], ":")
	if e.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
		return e, true
	}
	e.node, e.Kind = node, Kind(f[2][0])
	if e.Kind == Message {
		e.Data = slices.Clip([]byte(data)) // Form may append to it, on several goroutines
	} else {
		e.User = data
	}
	return e, true
}

// A past is the part of a room's history that catchup.lua or history.lua has read.
type past struct {
	end     Position // of the stream
	cut     bool     // the oldest entries were left out because of the limit
	entries []Entry
}

func parsePast(room string, cmd *redis.Cmd) (p past, err error) {
	texts, err := cmd.StringSlice()
	if err != nil {
		return p, err
	}
	if len(texts) < 2 || len(texts)%2 != 0 {
		return p, errAnswer
	}
	end, err := ParsePosition(texts[0])
	if err != nil {
		return p, errAnswer
	}
	p = past{end: end, cut: texts[1] == "1"}
	for pair := range slices.Chunk(texts[2:], 2) {
		e, ok := parseEntry(room, pair[0], pair[1])
		if !ok {
			return p, errAnswer
		}
		p.entries = append(p.entries, e)
	}
	return p, nil
}
