//go:build unix

package redisgroup_test

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// named returns a client whose connections Redis knows by a name.
func named(s *redistest.Server, name string) *redis.Client {
	return s.ClientWith(redis.Options{ClientName: name})
}

// A killer kills connections of one name, or any.
type killer struct {
	t     *testing.T
	admin *redis.Client
	ids   *regexp.Regexp
	rng   *rand.Rand
	kills int
}

func newKiller(t *testing.T, r *redistest.Server, name string) *killer {
	ids := regexp.MustCompile(`(?m)^id=(\d+) .* name=` + name + ` .*$`)
	return &killer{t, named(r, "admin"), ids, rand.New(rand.NewPCG(testkit.Seed(t, 1), 1)), 0}
}

// kill kills the connection with the subscriptions most of the time, or another.
func (k *killer) kill() {
	list, err := k.admin.ClientList(k.t.Context()).Result()
	if err != nil {
		k.t.Fatal(err)
	}
	var wires, others []string
	for _, m := range k.ids.FindAllStringSubmatch(list, -1) {
		if strings.Contains(m[0], " sub=0 ") && strings.Contains(m[0], " ssub=0 ") || strings.Contains(m[0], " sub=0 psub=0 ") {
			others = append(others, m[1])
		} else {
			wires = append(wires, m[1])
		}
	}
	victims := wires
	if len(wires) == 0 || len(others) > 0 && k.rng.IntN(4) == 0 {
		victims = others
	}
	if len(victims) > 0 {
		n := k.admin.ClientKillByFilter(k.t.Context(), "ID", victims[k.rng.IntN(len(victims))]).Val()
		k.kills += int(n)
	}
}

// enough is how many connections a killer kills at least.
const enough = 20

// during kills now and then until the time is over, and until that was often enough.
func (k *killer) during(d time.Duration) {
	for began := time.Now(); time.Since(began) < d || k.kills < enough && time.Since(began) < testkit.Patience; {
		k.kill()
		time.Sleep(time.Duration(k.rng.Int64N(int64(60 * time.Millisecond)))) // so that some work in between
	}
}

// atRate calls say 5,000 times per second, as far as that can be, until stop is closed, and returns
// how often.
func atRate(stop chan struct{}, say func(i int)) (n int) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return n
		case <-tick.C:
		}
		for range 10 {
			say(n)
			n++
		}
	}
}

// whileSpeaking calls f while say is called 5,000 times per second.
func whileSpeaking(say func(i int), f func()) (said int) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { said = atRate(stop, say) })
	f()
	close(stop)
	wg.Wait()
	return said
}

// heardNumbers hears numbers until the last one has come, and wants each once at most, and in
// order.
func heardNumbers(t *testing.T, c *client, last string) (heard int) {
	t.Helper()
	newest := -1
	for {
		line := c.hear()
		if line == last {
			return heard
		}
		i, err := strconv.Atoi(line)
		if err != nil {
			continue // it spoke to see whether it is heard
		}
		if i <= newest {
			t.Errorf("%d came after %d", i, newest)
		}
		newest = i
		heard++
	}
}

// plainUnderFire lets one process speak in a plain room while something happens. Each message must
// be taken by Redis, or be counted as lost, and be heard in order, once at most. It returns how
// many were lost in secret: neither heard elsewhere nor counted.
func plainUnderFire(t *testing.T, r *redistest.Server, fire func()) (secret int) {
	cfg := settled()
	cfg.OnError = func(error) {}
	cfg.MaxQueue = 64 << 20 // all that may be said while Redis is stopped
	one, two := startNode(t, named(r, "one"), cfg), startNode(t, named(r, "two"), settled())
	a, b := one.dial(), two.dial()
	for _, c := range []*client{a, b} {
		c.say("join red")
		c.wants("joined true")
	}
	meet(t, "red", a, b)
	a.say("leave red") // so that nobody need hear all of it here
	a.wants("left true")
	heard := make(chan int, 1)
	go func() {
		defer close(heard)
		heard <- heardNumbers(t, b, "the end")
	}()
	defer func() {
		b.Close()
		<-heard
	}()
	g, _ := one.hub.Group("red")
	testkit.Eventually(t, "what they met with is counted", func() bool { return one.hub.Stats().Queued == 0 })
	before := one.hub.Stats()
	said := whileSpeaking(func(i int) {
		if err := g.Broadcast([]byte(strconv.Itoa(i))); err != nil {
			t.Error(err)
		}
	}, fire)
	testkit.Eventually(t, "all is said", func() bool { return one.hub.Stats().Queued == 0 })
	after := one.hub.Stats()
	taken, lost := int(after.Published-before.Published), int(after.Lost-before.Lost)
	if taken+lost != said {
		t.Errorf("%d said, but %d taken and %d lost", said, taken, lost)
	}
	n := untilHeard(t, g, "the end", heard)
	t.Logf("%d said, %d heard, %d lost or uncertain, %d connections", said, n, lost, after.Connects)
	return said - n - lost
}

// untilHeard says the last thing until it is heard, and returns what heard brings.
func untilHeard(t *testing.T, g *redisgroup.Group, last string, heard chan int) int {
	t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; {
		_ = g.Broadcast([]byte(last))
		select {
		case n, ok := <-heard:
			if !ok {
				t.FailNow() // it has said why
			}
			return n
		case <-time.After(50 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatalf("never heard: %s", last)
			}
		}
	}
}

// Connections of one who speaks in a plain room are killed, 5,000 messages per second: each is
// heard once and in order, or its loss is counted.
func TestSpeakerKilledAtSpeed(t *testing.T) {
	r := redistest.Start(t)
	k := newKiller(t, r, "one")
	secret := plainUnderFire(t, r, func() { k.during(soakTime(t, 5*time.Second)) })
	t.Logf("%d connections killed", k.kills)
	if secret > 0 {
		t.Errorf("%d were lost and nobody was told", secret)
	}
	if k.kills < enough {
		t.Error("too few were killed")
	}
}

// remembering is a scene whose room keeps all that is said: nobody is too slow for it.
func remembering(t *testing.T) *scene {
	t.Helper()
	r := redistest.Start(t)
	cfg := settled()
	cfg.History = 1 << 20
	one, two := startNode(t, named(r, "one"), cfg), startNode(t, named(r, "two"), cfg)
	return &scene{
		redis: r, one: one, two: two, speaker: newSpeaker(t, one, "room", "s"), ws: []*witness{one.watch("room"), two.watch("room")},
	}
}

// Connections of all who are in an ordered room are killed, 5,000 messages per second: all hear
// each message that was taken once and in order, without a gap.
func TestOrderedKilledAtSpeed(t *testing.T) {
	s := remembering(t)
	sp, k := s.speaker, newKiller(t, s.redis, "(?:one|two)")
	said := whileSpeaking(func(int) { sp.say(1, 20) }, func() { k.during(soakTime(t, 5*time.Second)) })
	s.end(t, false)
	t.Logf("%d said under fire, %d connections killed", said, k.kills)
	if k.kills < enough || len(sp.taken) < 100 {
		t.Errorf("%d were killed, and %d of %d taken", k.kills, len(sp.taken), said)
	}
}

// A Redis that stands still for so long that the connection with the subscriptions is given up, and
// then goes on: who speaks knows what Redis has not taken, and ordered rooms have no gap. In plain
// rooms a process misses what is said before it is subscribed again.
func TestRedisStoppedForLong(t *testing.T) {
	stop := func(r *redistest.Server) func() {
		return func() {
			r.Signal(syscall.SIGSTOP)
			time.Sleep(12 * time.Second) // a connection for subscriptions is given up after eight
			r.Signal(syscall.SIGCONT)
		}
	}
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		r := redistest.Start(t)
		t.Logf("%d missed by one who was not subscribed again yet", plainUnderFire(t, r, stop(r)))
	})
	t.Run("ordered", func(t *testing.T) {
		t.Parallel()
		s := remembering(t)
		s.speaker.during(stop(s.redis))
		s.end(t, false)
		for _, n := range []*node{s.one, s.two} {
			if got := n.hub.Stats().Connects; got < 2 {
				t.Errorf("%d connections: it was not given up", got)
			}
		}
		a, b := s.one.dial(), s.two.dial()
		for _, c := range []*client{a, b} {
			c.say("join red")
			c.wants("joined true")
		}
		meet(t, "red", a, b)
	})
}
