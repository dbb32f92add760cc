//go:build unix

package redisgroup_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// okKeys are rules that allow all keys of a Hub but streams of rooms whose names do not begin with ok.
var okKeys = []string{"resetkeys", "~*}[a-np-z]*", "~*}o:ok*"}

// okUser makes a user with rights to rooms whose names begin with ok.
func (s *redisServer) okUser(name string, rules ...string) {
	s.cli(append(append([]string{"acl", "setuser", name, "on", ">" + name, "+@all", "allchannels"}, okKeys...), rules...)...)
}

// What is said in a room that is denied has no others refused that go along with it.
func TestDeniedRoomIsRefusedAlone(t *testing.T) {
	r := newRedis(t)
	r.okUser("some", "resetchannels", "&*:ok*")
	n := startNode(t, r.as("some"), settled())
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("ok%d", i))
	}
	const rounds = 50
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := make(map[string][]redisgroup.Position)
	for range rounds {
		for _, name := range append(names, "bad") {
			room, err := n.hub.Ordered(name)
			if err != nil {
				t.Fatal(err)
			}
			wg.Add(1)
			err = room.BroadcastThen([]byte("hello"), func(p redisgroup.Position, err error) {
				defer wg.Done()
				if denied := err != nil && strings.HasPrefix(err.Error(), "NOPERM"); denied != (name == "bad") {
					t.Errorf("said in %s: %v", name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				got[name] = append(got[name], p)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	if lost := n.hub.Stats().Lost; lost != rounds {
		t.Errorf("%d are lost, want %d", lost, rounds)
	}
	for _, name := range names {
		for i, p := range got[name] {
			if p.Number != uint64(i+1) {
				t.Errorf("%s: message %d has the number %d", name, i+1, p.Number)
			}
		}
	}
}

// A message that went along with one to a room that is denied is taken, in order, though more of
// its own room follows in the same batch.
func TestDeniedRoomHasNothingOvertaken(t *testing.T) {
	r := newRedis(t)
	for range 5 { // which is denied is known afterwards
		r.okUser("some")
		n := startNode(t, r.as("some"), settled())
		c, watch := n.dial(), n.dial()
		c.say("bind ann")
		c.wants("bound")
		var wg sync.WaitGroup
		say := func(name, what string) {
			room, err := n.hub.Ordered(name)
			if err != nil {
				t.Fatal(err)
			}
			wg.Add(1)
			err = room.BroadcastThen([]byte(what), func(_ redisgroup.Position, err error) {
				defer wg.Done()
				if denied := err != nil && strings.HasPrefix(err.Error(), "NOPERM"); denied != (name == "bad") {
					t.Errorf("%s, said in %s: %v", what, name, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		watch.say("history ok1 0")
		watch.until("arrived")
		redisgroup.Together(n.hub, func() {
			say("ok1", "first")
			say("bad", "nothing")
			c.say("ojoin ok1")
			c.wants("joined true")
			say("ok1", "second")
		})
		wg.Wait()
		if got := strings.Join(watch.until("second"), " "); !regexp.MustCompile("first.* in ok1 .* ann .*second").MatchString(got) {
			t.Errorf("heard %q", got)
		}
		n.stop()
	}
}

// One who joins a room that is denied is told so at once, and has nobody else wait who joins together
// with it, or whose room catches up.
func TestDeniedRoomIsReadAlone(t *testing.T) {
	r := newRedis(t)
	r.okUser("some")
	n := startNode(t, r.as("some"), settled())
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("history ok%d 0", i))
	}
	lines = append(lines, "history bad 0")
	c := n.dial()
	c.say("%s", strings.Join(lines, "\n"))
	denied := 0
	for range lines {
		switch got := c.hear(); {
		case strings.Contains(got, "NOPERM"):
			denied++
		case !strings.HasSuffix(got, "err=<nil>"):
			t.Errorf("joining: %q", got)
		}
	}
	if denied != 1 {
		t.Errorf("%d were denied", denied)
	}
	r.cli("acl", "setuser", "some", "allkeys")
	d := n.dial()
	eventually(t, "it is allowed", func() bool {
		d.say("history bad 0")
		return strings.HasSuffix(d.hear(), "err=<nil>")
	})
	eventually(t, "all are live", func() bool { return redisgroup.Live(n.hub) == len(lines) })
	r.okUser("some")
	connects := n.hub.Stats().Connects
	r.cli("client", "kill", "type", "pubsub")
	eventually(t, "it has another connection", func() bool { return n.hub.Stats().Connects > connects })
	eventually(t, "all others are live", func() bool { return redisgroup.Live(n.hub) == len(lines)-1 })
	c.say("osay ok0 hello")
	c.until("hello")
}
