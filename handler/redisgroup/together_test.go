package redisgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

func item(o op, channel string) *outgoing { return &outgoing{op: o, place: place{channel: channel}} }

// The messages of a bucket's ordered rooms are one command, in their order. Each message of a plain
// room has its own.
func TestTogether(t *testing.T) {
	other := item(opOrdered, "c")
	other.bucket = 1
	batch := []*outgoing{item(opUser, "a"), item(opOrdered, "a"), item(opPlain, "p"), item(opPeek, "b"), item(opPlain, "p"), other}
	var got []string
	for _, s := range segments(batch) {
		text := ""
		for _, o := range s.items {
			text += o.channel
		}
		got = append(got, text)
	}
	if want := []string{"aab", "p", "p", "c"}; !slices.Equal(got, want) {
		t.Errorf("the commands are %q, want %q", got, want)
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
