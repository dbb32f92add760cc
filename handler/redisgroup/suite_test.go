package redisgroup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// settled is a config in which tests need not wait for long, and nobody is taken for dead because
// the machine stood still.
func settled() redisgroup.Config {
	return redisgroup.Config{Linger: 50 * time.Millisecond, Lease: 10 * time.Second}
}

// mortal is settled for tests that wait until the dead have gone.
func mortal() redisgroup.Config {
	return redisgroup.Config{Linger: 50 * time.Millisecond, Lease: 3 * time.Second}
}

// meet lets a and b talk until each hears the other: their subscriptions stand.
func meet(t *testing.T, room string, a, b *client) {
	t.Helper()
	for from, to := range map[*client]*client{a: b, b: a} {
		for i := 0; ; i++ {
			from.say("others %s probe", room)
			_ = to.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if line, err := to.in.ReadString('\n'); err == nil && line == "probe\n" {
				break
			}
			if i > 200 {
				t.Fatal("they never meet")
			}
		}
	}
	for _, c := range []*client{a, b} { // probes that came late
		c.say("others %s end", room)
	}
	a.until("end")
	b.until("end")
}

func TestPlain(t *testing.T) {
	for _, oneOrder := range []bool{false, true} {
		t.Run(fmt.Sprintf("OneOrder=%v", oneOrder), func(t *testing.T) {
			onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
				cfg := settled()
				cfg.OneOrder = oneOrder
				one, two := startNode(t, connect(), cfg), startNode(t, connect(), cfg)
				a, b, c := one.dial(), two.dial(), two.dial()
				for _, m := range []*client{a, b} {
					m.say("join red")
					m.wants("joined true")
				}
				a.say("join red")
				a.wants("joined false")
				meet(t, "red", a, b)
				c.say("say red hello") // from one who is no member
				a.wants("hello")
				b.wants("hello")
				for i := range 100 {
					a.say("say red %d", i)
				}
				for i := range 100 {
					a.wants(fmt.Sprint(i))
					b.wants(fmt.Sprint(i))
				}
				b.say("leave red")
				b.wants("left true")
				a.say("say red alone")
				a.wants("alone")
				b.silent()
			})
		})
	}
}

func TestOrdered(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		one, two := startNode(t, connect(), settled()), startNode(t, connect(), settled())
		a, b := one.dial(), two.dial()
		for _, m := range []*client{a, b} {
			m.say("history blue 0")
			if line := m.hear(); !strings.HasSuffix(strings.Fields(line)[1], "-0") || !strings.Contains(line, " 0 gap=false") {
				t.Fatalf("arrived in an empty room with %q", line)
			}
		}
		const each = 200
		for i := range each {
			a.say("osay blue a%d", i)
			b.say("osay blue b%d", i)
		}
		heardA, heardB := a.messages(2*each), b.messages(2*each)
		if strings.Join(heardA, "\n") != strings.Join(heardB, "\n") {
			t.Fatal("two members saw two orders")
		}
		numbered(t, heardA, 1)
		a.say("oothers blue not for me")
		b.until("not for me")
		a.silent()
		// One who comes later gets the past; and one who was away gets what it missed.
		c := two.dial()
		c.say("history blue 10")
		if line := c.hear(); !strings.Contains(line, fmt.Sprintf("-%d 10 gap=false", 2*each+1)) {
			t.Errorf("arrived with %q", line)
		}
		numbered(t, c.messages(10), 2*each+1-9)
		d := one.dial()
		at := strings.Fields(heardA[99])[2]
		d.say("since blue %s", at)
		d.until("arrived")
		numbered(t, d.messages(2*each+1-100), 101)
	})
}

// messages hears n messages of an ordered room.
func (c *client) messages(n int) []string {
	c.t.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = c.hear()
		if !strings.HasPrefix(all[i], "msg ") {
			c.t.Fatalf("heard %q, want message %d", all[i], i)
		}
	}
	return all
}

// numbered wants messages of one epoch, numbered from first on.
func numbered(t *testing.T, lines []string, first uint64) {
	t.Helper()
	var epoch uint64
	for i, line := range lines {
		p, err := redisgroup.ParsePosition(strings.Fields(line)[2])
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			epoch = p.Epoch
		}
		if want := (redisgroup.Position{Epoch: epoch, Number: first + uint64(i)}); p != want {
			t.Fatalf("message %d is %v, want %v", i, p, want)
		}
	}
}
