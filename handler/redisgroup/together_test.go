package redisgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

func item(o op, channel string) *outgoing { return &outgoing{op: o, place: place{channel: channel}} }

// News of ordered rooms is one command, in its order. Each message of a plain room has its
// own.
func TestTogether(t *testing.T) {
	var got []string
	for _, r := range requests([]*outgoing{item(opUser, "a"), item(opOrdered, "a"), item(opPlain, "p"), item(opPeek, "b"), item(opPlain, "p")}) {
		text := ""
		for _, o := range r.items {
			text += o.channel
		}
		got = append(got, text)
	}
	if want := []string{"aab", "p", "p"}; !slices.Equal(got, want) {
		t.Errorf("the commands are %q, want %q", got, want)
	}
}

// A message of a plain room that was not taken is not sent again if a later one of its room was.
func TestOvertaken(t *testing.T) {
	l := &lane{hub: &Hub{masters: &masters{}}}
	sent := func(channel string, err error) *request {
		cmd := redis.NewCmd(t.Context())
		cmd.SetErr(err)
		return &request{items: []*outgoing{item(opPlain, channel)}, cmd: cmd}
	}
	busy := answerError("BUSY")
	all := []*request{sent("a", busy), sent("b", busy), sent("a", busy), sent("a", nil), sent("a", busy), sent("c", nil)}
	again := l.settle(all)
	if len(again) != 2 || again[0] != all[1].items[0] || again[1] != all[4].items[0] {
		t.Errorf("%d are sent again, want that of b and the last of a", len(again))
	}
	if lost := l.hub.stats.Lost; lost != 2 || !errors.Is(l.failure, busy) {
		t.Errorf("%d are lost, want 2; it failed with %v", lost, l.failure)
	}
}
