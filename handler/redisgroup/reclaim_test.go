package redisgroup

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// While enabled, a slowConn holds back the first command, of all its connections, that contains
// what.
type slowConn struct {
	net.Conn
	what []byte
	keep chan chan struct{} // has one that the command waits for
}

func (c *slowConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.what) {
		select {
		case until := <-c.keep:
			until <- struct{}{}
			<-until
		default:
		}
	}
	return c.Conn.Write(b)
}

// A name that is released while it is claimed again is nobody's.
func TestReleaseWhileClaimedAgain(t *testing.T) {
	keep := make(chan chan struct{}, 1)
	client := redis.NewClient(&redis.Options{
		Addr: miniredis.RunT(t).Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &slowConn{c, []byte("my-name"), keep}, err
		},
		ReadTimeout: time.Minute,
	})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	if err := h.Claim(t.Context(), "my-name", "me"); err != nil {
		t.Fatal(err)
	}
	until := make(chan struct{})
	keep <- until
	h.renewer.rejoin(h.renewer.name())
	<-until // it is claimed again now
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = h.Release(t.Context(), "my-name", "me")
	}()
	testkit.Eventually(t, "it is being released", func() bool { return Claimed(h, "my-name") == "" })
	until <- struct{}{}
	<-released
	testkit.Eventually(t, "it is nobody's", func() bool {
		_, taken, err := h.Owner(t.Context(), "my-name")
		return err == nil && !taken
	})
}

// A heldConn keeps what comes from Redis back while a lock is held.
type heldConn struct {
	net.Conn
	lock *sync.RWMutex
}

func (c heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.lock.RLock()
	defer c.lock.RUnlock()
	return n, err
}

// openHeld opens a Hub to which Redis says nothing while lock is held.
func openHeld(t *testing.T, cfg Config) (h *Hub, m *miniredis.Miniredis, lock *sync.RWMutex) {
	t.Helper()
	m, lock = miniredis.RunT(t), new(sync.RWMutex)
	client := redis.NewClient(&redis.Options{
		Addr: m.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return heldConn{c, lock}, err
		},
		ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { client.Close() })
	h, err := Open(t.Context(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Die(h) })
	return h, m, lock
}

// A grant that is heard of when the lease has run out since, as the process was stopped, is asked
// for again: the name may be another's.
func TestGrantAfterTheLease(t *testing.T) {
	h, m, lock := openHeld(t, Config{Lease: time.Second})
	if err := h.Claim(t.Context(), "first", "me"); err != nil { // which has Redis know the script
		t.Fatal(err)
	}
	lock.Lock()
	claimed := make(chan error, 1)
	go func() { claimed <- h.Claim(t.Context(), "name", "me") }()
	testkit.Eventually(t, "Redis has granted it", func() bool { return m.HGet(h.keys.claims(), "name") != "" })
	other := openOn(t, m, redis.Options{})
	testkit.Eventually(t, "another claims it", func() bool { return other.Claim(t.Context(), "name", "other") == nil })
	lock.Unlock()
	if err := <-claimed; !errors.Is(err, ErrTaken) {
		t.Errorf("it was told %v, and another has the name", err)
	}
}

// A name is given back that was granted when its caller had stopped waiting, unless the owner had
// it before.
func TestGrantThatNobodyWaitsFor(t *testing.T) {
	h, m, lock := openHeld(t, Config{})
	for _, name := range []string{"had", "gone"} {
		if err := h.Claim(t.Context(), name, "me"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"had", "new", "gone"} {
		lock.Lock()
		before := m.HGet(h.keys.claims(), name)
		ctx, cancel := context.WithCancel(t.Context())
		claimed := make(chan error, 1)
		go func() { claimed <- h.Claim(ctx, name, "me") }()
		testkit.Eventually(t, "Redis has granted it", func() bool { return m.HGet(h.keys.claims(), name) != before })
		cancel()
		if err := <-claimed; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it was told %v", name, err)
		}
		if name == "gone" {
			_ = h.Release(ctx, name, "me")
		}
		lock.Unlock()
		testkit.Eventually(t, "all is answered", func() bool { return !Unsettled(h) })
		if has := m.HGet(h.keys.claims(), name) != ""; has != (name == "had") || has != (Claimed(h, name) != "") {
			t.Errorf("%s is claimed: %v, by the process: %q", name, has, Claimed(h, name))
		}
	}
}

// A claim that is granted as its context ends returns nil and keeps the name, or returns the
// context's error and gives the name back.
func TestGrantAsTheContextEnds(t *testing.T) {
	h, m, _ := openHeld(t, Config{})
	testkit.Eventually(t, "it has a lease", func() bool { return Held(h) })
	for i := range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		err := h.Claim(ctx, "name", "me")
		if had := Claimed(h, "name") != ""; had != (err == nil) {
			t.Fatalf("round %d: it was told %v, and has the name: %v", i, err, had)
		}
		if err == nil {
			_ = h.Release(t.Context(), "name", "me")
		}
	}
	q := &claimRequest{renewer: h.renewer, op: "claim", name: "name", owner: "me", done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.ctx = ctx
	if err := q.answered(redis.NewCmdResult(int64(1), nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-q.done; !errors.Is(err, context.Canceled) {
		t.Errorf("a grant that nobody waits for is told as %v", err)
	}
	testkit.Eventually(t, "it is nobody's", func() bool { return !Unsettled(h) && m.HGet(h.keys.claims(), "name") == "" })
}
