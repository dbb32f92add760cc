//go:build unix

package redisgroup_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// miniClient returns a miniredis, and a client of it.
func miniClient(t *testing.T, change func(o *redis.Options)) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.RunT(t)
	o := redistest.Patient(m.Addr())
	if change != nil {
		change(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return m, client
}

// A hooked is a hook that calls after for each pipeline that Redis has answered.
type hooked struct {
	redis.Hook
	after func(cmds []redis.Cmder)
}

func (h hooked) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.after(cmds)
		return err
	}
}

// Users who leave while a Hub is being closed do not bring back those who are left.
func TestNobodyComesBackWhileHubCloses(t *testing.T) {
	m, hooks := miniClient(t, nil)
	var going *client
	var once sync.Once
	hooks.AddHook(hooked{after: func(cmds []redis.Cmder) {
		if cmds[len(cmds)-1].Name() == "smembers" { // there is a tombstone
			once.Do(func() {
				going.say("oleave room")
				going.until("left true")
				time.Sleep(300 * time.Millisecond) // in which the one who is left must not be told to Redis
			})
		}
	}})
	n := startNode(t, hooks, settled())
	testkit.Eventually(t, "there is a lease", func() bool { return redisgroup.Held(n.hub) })
	for _, user := range []string{"ann", "bob"} {
		c := n.dial()
		c.say("bind %s", user)
		c.wants("bound")
		c.say("history room 0")
		c.until("in room")
		going = c
	}
	if err := n.hub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range m.Keys() {
		if strings.Contains(key, "users:") || strings.Contains(key, "members:") {
			t.Errorf("%s is left", key)
		}
	}
}

// A Hub that is closed has no names any more.
func TestClosedHubHasNoToken(t *testing.T) {
	_, client := miniClient(t, nil)
	hub, err := redisgroup.Open(t.Context(), client, settled())
	if err == nil {
		err = hub.Claim(t.Context(), "job", "ann")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := hub.Token("job", "ann"); !ok {
		t.Error("no token of a name that was claimed")
	}
	if err := hub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := hub.Token("job", "ann"); ok {
		t.Error("a token of a name that was given up")
	}
}

// An entry that another program has put into a stream is no message, and disturbs nobody.
func TestForeignEntries(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		admin := connect()
		n := startNode(t, connect(), settled())
		a := n.dial()
		a.say("history room 0")
		a.until("arrived")
		key := redisgroup.StreamOf(n.hub, "room")
		for i, values := range [][]string{{"x", ""}, {"e", "a b"}, {"e", "a n:x m\nhello"}, {"e", "\xff", "f", "g"}} {
			if err := admin.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: values}).Err(); err != nil {
				t.Fatal(err)
			}
			for _, payload := range []string{"", "x", "1-2 ", "1-2 a b m\nhello", "18446744073709551615-1 a :1 m\nx"} {
				admin.Publish(t.Context(), key, payload)
			}
			a.say("osay room %d", i)
			a.until("msg room")
			b := n.dial()
			b.say("history room 10")
			if line := b.hear(); !strings.HasSuffix(line, "err=<nil>") {
				t.Fatalf("one who joins after %q: %s", values, line)
			}
			b.until("msg room")
			b.Close()
		}
	})
}

// An answer of a strange shape is an error. It is asked for again at the next lease, not at once.
func TestStrangeListOfNames(t *testing.T) {
	_, client := miniClient(t, nil)
	var lists atomic.Int64
	client.AddHook(hooked{after: func(cmds []redis.Cmder) {
		for _, cmd := range cmds {
			if slices.Contains(cmd.Args(), any("list")) {
				cmd.(interface{ SetVal(v any) }).SetVal([]any{"name", "1"})
				lists.Add(1)
			}
		}
	}})
	cfg := settled()
	cfg.Lease = 300 * time.Millisecond
	n := startNode(t, client, cfg)
	testkit.Eventually(t, "there is a lease", func() bool { return redisgroup.Held(n.hub) })
	redisgroup.DeclareDead(t.Context(), n.hub) // so it asks for the names that it has
	began := time.Now()
	testkit.Eventually(t, "it is asked for again", func() bool { return lists.Load() > 3 })
	if took := time.Since(began); took < cfg.Lease/2 {
		t.Errorf("asked four times in %v", took)
	}
}

// One who leaves in then, and joins again there, gets nothing of the past twice.
func TestLeaveAndJoinAgainInThen(t *testing.T) {
	_, client := miniClient(t, nil)
	n := startNode(t, client, settled())
	sp := newSpeaker(t, n, "room", "s")
	sp.say(1, 10)
	sp.settled(t)
	o, err := n.hub.Ordered("room")
	if err != nil {
		t.Fatal(err)
	}
	from := redisgroup.From{History: 10}
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		o.JoinFrom(c, from, func(c *loop.Conn, _ redisgroup.Arrival) {
			o.Leave(c)
			o.JoinFrom(c, from, arrived)
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}}
	ctx, cancel := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = srv.Wait()
	}()
	c := (&node{t: t, srv: srv}).dial()
	if line := c.hear(); !strings.HasPrefix(line, "arrived") {
		t.Fatalf("heard %q before it arrived", line)
	}
	c.until("msg room")
	c.silent()
}

// Redis may be full when a message is sent again that it may have taken. It is not said to be
// refused then: Redis looks for it, or nobody knows.
func TestFullWhenSentAgain(t *testing.T) {
	sendAgain := func(t *testing.T, client redis.UniversalClient, fill func() error) error {
		var k cutter
		hub, err := redisgroup.Open(t.Context(), redistest.Like(t, client, k.dial), settled())
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close(t.Context())
		o, err := hub.Ordered("room")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		for i, mode := range []cut{cutNothing, cutAnswers} {
			k.set(mode)
			err := o.BroadcastThen([]byte("hello"), func(_ redisgroup.Position, err error) { done <- err })
			if err == nil && i == 0 {
				err = <-done
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		testkit.Eventually(t, "its answer is lost", func() bool { return redisgroup.Unclear(hub) == 1 })
		if err := fill(); err != nil {
			t.Fatal(err)
		}
		k.set(cutNothing)
		return <-done
	}
	t.Run("miniredis", func(t *testing.T) {
		m, client := miniClient(t, nil)
		err := sendAgain(t, client, func() error { m.SetError("OOM command not allowed"); return nil })
		m.SetError("")
		if !errors.Is(err, redisgroup.ErrUncertain) {
			t.Errorf("told of %v", err)
		}
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Start(t).PatientClient()
		set := func(max string) error { return client.ConfigSet(t.Context(), "maxmemory", max).Err() }
		err := sendAgain(t, client, func() error { return set("1") })
		if err != nil {
			t.Errorf("told of %v, though it was taken", err)
		}
		if err := set("0"); err != nil {
			t.Fatal(err)
		}
	})
}

// Nobody is taken for dead because Redis has been full for longer than a lease.
func TestFullForLongerThanALease(t *testing.T) {
	client := redistest.Start(t).PatientClient()
	cfg := settled()
	cfg.Lease = time.Second
	one, two := startNode(t, client, cfg), startNode(t, client, cfg)
	a := one.dial()
	a.say("bind ann")
	a.wants("bound")
	a.say("history room 0")
	a.until("in room")
	if err := one.hub.Claim(t.Context(), "job", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, max := range []string{"1", "0"} {
		if err := client.ConfigSet(t.Context(), "maxmemory", max).Err(); err != nil {
			t.Fatal(err)
		}
		tick := time.Tick(10 * time.Millisecond)
		for began := time.Now(); time.Since(began) < 2*cfg.Lease; <-tick { // it must be so all the time
			if _, ok := one.hub.Token("job", "ann"); !ok {
				t.Fatalf("with maxmemory %s there is no lease", max)
			}
		}
	}
	if err := two.hub.Claim(t.Context(), "job", "bob"); !errors.Is(err, redisgroup.ErrTaken) {
		t.Errorf("a name that is another's: %v", err)
	}
	a.silent()
}

// A subBreaker breaks connections that subscribe.
type subBreaker struct{ net.Conn }

func (s subBreaker) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("subscribe")) {
		_ = s.Conn.Close()
		return 0, net.ErrClosed
	}
	return s.Conn.Write(b)
}

// A joining member gets an error if the Hub cannot subscribe to the room, even if everything else
// works.
func TestJoinWithoutSubscription(t *testing.T) {
	_, client := miniClient(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return subBreaker{c}, err
		}
	})
	cfg := settled()
	cfg.PublishTimeout = 500 * time.Millisecond
	n := startNode(t, client, cfg)
	c := n.dial()
	c.say("history room 0")
	if line := c.hear(); !strings.Contains(line, redisgroup.ErrTimeout.Error()) {
		t.Errorf("one who joins heard %q", line)
	}
	if j := redisgroup.Joining(n.hub); j != 0 {
		t.Errorf("%d are joining", j)
	}
}
