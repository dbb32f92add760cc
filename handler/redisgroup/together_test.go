package redisgroup

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

func item(o op, channel string) *outgoing { return &outgoing{op: o, place: place{channel: channel}} }

// No room is in two commands of a batch: if the first must be sent again, it would come after the
// second. Rooms between each other, and messages of plain rooms, may be in any number.
func TestTogether(t *testing.T) {
	dropped := item(opUser, "a")
	dropped.dropped = true
	for _, tt := range []struct {
		queue []*outgoing
		want  int
	}{
		{nil, 0},
		{[]*outgoing{item(opOrdered, "a"), item(opOrdered, "b"), item(opOrdered, "a")}, 3},
		{[]*outgoing{item(opOrdered, "a"), item(opPlain, "p"), item(opOrdered, "a"), item(opPlain, "p")}, 4},
		{[]*outgoing{item(opOrdered, "a"), item(opPeek, "b"), item(opOrdered, "a")}, 3},
		{[]*outgoing{item(opOrdered, "a"), item(opPeek, "a"), item(opOrdered, "a")}, 1},
		{[]*outgoing{item(opUser, "a"), item(opUser, "b"), item(opUser, "a"), item(opUser, "b")}, 4},
		{[]*outgoing{item(opUser, "a"), item(opOrdered, "b"), item(opOrdered, "a")}, 2},
		{[]*outgoing{item(opOrdered, "a"), dropped, item(opOrdered, "a")}, 3},
	} {
		if got := together(tt.queue); got != tt.want {
			t.Errorf("%d of %d go out together, want %d", got, len(tt.queue), tt.want)
		}
	}
	batch := []*outgoing{item(opUser, "a"), item(opUser, "b"), item(opUser, "a"), item(opPlain, "p"), item(opPlain, "p")}
	all := segments(batch)
	if len(all) != 4 || len(all[0].items) != 2 || all[0].items[1] != batch[2] {
		t.Errorf("%d commands", len(all))
	}
}

// A message of a plain room that was not taken is not sent again if a later one of its room was.
func TestOvertaken(t *testing.T) {
	sent := func(channel string, err error) *segment {
		cmd := redis.NewCmd(t.Context())
		cmd.SetErr(err)
		return &segment{op: opPlain, items: []*outgoing{item(opPlain, channel)}, cmd: cmd}
	}
	busy := errors.New("BUSY")
	all := []*segment{sent("a", busy), sent("b", busy), sent("a", nil), sent("a", busy)}
	for i, want := range []bool{true, false, false, false} {
		if overtaken(all, i) != want {
			t.Errorf("message %d: overtaken %v", i, !want)
		}
	}
}
