package redisgroup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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

// A room whose last member has left stays subscribed for Config.Linger, and is dropped then.
func TestLinger(t *testing.T) {
	t.Parallel()
	connect := startMini(t)
	cfg := settled()
	cfg.Linger = 300 * time.Millisecond
	n := startNode(t, connect(), cfg)
	witness := connect()
	subscribed := func() int { return len(witness.PubSubChannels(t.Context(), "*").Val()) }
	c := n.dial()
	c.say("join room")
	c.wants("joined true")
	testkit.Eventually(t, "it is subscribed", func() bool { return subscribed() == 1 })
	began := time.Now()
	c.say("leave room")
	c.wants("left true")
	testkit.Eventually(t, "the room is forgotten", func() bool { return n.hub.Stats().Rooms == 0 })
	if d := time.Since(began); d < cfg.Linger {
		t.Errorf("it was forgotten after %v, with a Linger of %v", d, cfg.Linger)
	}
	testkit.Eventually(t, "it is not subscribed any more", func() bool { return subscribed() == 0 })
}

// A message to an ordered room is tried again for PublishTimeout, and its publisher told.
func TestPublishTimeout(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	cfg := settled()
	cfg.PublishTimeout = 200 * time.Millisecond
	n := startNode(t, client, cfg)
	m.Close()
	o, err := n.hub.Ordered("room")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	if err := o.BroadcastThen([]byte("lost"), func(_ redisgroup.Position, err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-told:
		if !errors.Is(err, redisgroup.ErrTimeout) {
			t.Errorf("told %v", err)
		}
	case <-time.After(testkit.Patience):
		t.Error("nobody was told")
	}
}

// Without Config.OnGap a connection that has missed something is closed, and says why.
func TestGapClosesWithoutOnGap(t *testing.T) {
	client := startMini(t)()
	hub, err := redisgroup.Open(t.Context(), client, redisgroup.Config{})
	if err != nil {
		t.Fatal(err)
	}
	room, err := hub.Ordered("room")
	if err != nil {
		t.Fatal(err)
	}
	closed, arrived := make(chan error, 1), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		c.AfterClose(func(err error) { closed <- err })
		room.JoinFrom(c, redisgroup.From{}, func(*loop.Conn, redisgroup.Arrival) { arrived <- struct{}{} })
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = srv.Wait()
		_ = hub.Close(t.Context())
	}()
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testkit.Receive(t, "it has joined", arrived)
	heard := make(chan error, 1)
	say := func() {
		if err := room.BroadcastThen([]byte("x"), func(_ redisgroup.Position, err error) { heard <- err }); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Receive(t, "it was said", heard); err != nil {
			t.Fatal(err)
		}
	}
	say()
	redistest.FlushAll(t, client)
	say()
	var gap *redisgroup.Gap
	if err := testkit.Receive(t, "it is closed", closed); !errors.As(err, &gap) || gap.Room != "room" {
		t.Errorf("closed with %v", err)
	}
}

// A connection for subscriptions that has gone dumb, as those do behind a firewall that has
// forgotten them, is given up after some eight seconds, and what was missed on it is caught up
// with.
func TestDumbConnection(t *testing.T) {
	testkit.NeedSlow(t, "it takes 8 s")
	t.Parallel()
	connect := startMini(t)
	var dumb atomic.Bool
	opt := redistest.Patient(connect().(*redis.Client).Options().Addr)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil || dumb.Load() {
			return c, err
		}
		return &dumbConn{Conn: c, dumb: &dumb}, nil
	}
	client := redis.NewClient(opt)
	defer client.Close()
	one, two := startNode(t, client, settled()), startNode(t, connect(), settled())
	c := one.dial()
	c.say("history room 0")
	c.until("gap=false")
	sp := newSpeaker(t, two, "room", "s")
	sp.say(1, 10)
	c.until("s:1")
	began := time.Now()
	dumb.Store(true)
	sp.say(3, 10)
	for _, want := range []string{"s:2", "s:3", "s:4"} {
		c.until(want)
	}
	t.Logf("caught up after %v", time.Since(began))
}

// Connections for subscriptions that are cut again and again, as soon as they are made, are made
// anew with longer and longer pauses.
func TestFlappingConnections(t *testing.T) {
	t.Parallel()
	connect := startMini(t)
	var flaps atomic.Int64
	var enough atomic.Bool
	witness := connect()
	opt := redistest.Patient(witness.(*redis.Client).Options().Addr)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &flappingConn{c, &flaps, &enough}, err
	}
	client := redis.NewClient(opt)
	defer client.Close()
	n := startNode(t, client, settled())
	g, err := n.hub.Group("room")
	if err != nil {
		t.Fatal(err)
	}
	c := n.dial()
	c.say("join room")
	c.wants("joined true")
	testkit.Eventually(t, "connections are cut", func() bool { return flaps.Load() > 1 })
	time.Sleep(1500 * time.Millisecond) // in this time there are some ten pauses, or a thousand connections
	cut := flaps.Load()
	if enough.Store(true); cut > 30 {
		t.Errorf("%d connections were made in 1.5 s", cut)
	}
	testkit.Eventually(t, "it is subscribed", func() bool {
		return len(witness.PubSubChannels(t.Context(), "*").Val()) == 1
	})
	if err := g.Broadcast([]byte("well again")); err != nil {
		t.Error(err)
	}
	c.until("well again")
}

// A flappingConn is cut when something is subscribed to, until that has been enough.
type flappingConn struct {
	net.Conn
	flaps  *atomic.Int64
	enough *atomic.Bool
}

func (c *flappingConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToUpper(b), []byte("SUBSCRIBE")) && !c.enough.Load() {
		c.flaps.Add(1)
		_ = c.Conn.Close()
	}
	return c.Conn.Write(b)
}

// A dumbConn takes everything and says nothing, from some moment on, if it has subscriptions.
type dumbConn struct {
	net.Conn
	dumb       *atomic.Bool
	subscribes atomic.Bool
}

func (c *dumbConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("SUBSCRIBE")) {
		c.subscribes.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *dumbConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.dumb.Load() || !c.subscribes.Load() {
			return n, err
		}
	}
}

// A joining member gets the newest MaxReplay bytes of history, and a gap for the rest.
func TestMaxReplay(t *testing.T) {
	t.Parallel()
	cfg := settled()
	cfg.MaxReplay = 1000
	n := startNode(t, startMini(t)(), cfg)
	a := n.dial()
	a.say("history room 0")
	a.until("gap=false")
	first := newSpeaker(t, n, "room", "s")
	first.say(10, 300)
	lines := a.until("s:10")
	since := strings.Fields(lines[0])[2] // "msg room POSITION s:1 ..."
	b := n.dial()
	b.say("since room %s", since)
	b.until("gap=true")
	past := b.until("s:10")
	if bytes := len(strings.Join(past, "")); len(past) < 2 || bytes > 1500 {
		t.Errorf("%d bytes of the past in %d entries", bytes, len(past))
	}
	for i, line := range past {
		if want := fmt.Sprintf("s:%d", 10-len(past)+1+i); !strings.Contains(line, want+" ") {
			t.Errorf("%.40q, want %s", line, want)
		}
	}
}
