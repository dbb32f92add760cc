//go:build unix

package redisgroup_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A mute sits between a Hub and Redis and can stop responding, like a process after SIGSTOP: it
// answers nothing from then on, and writes to it block in the end.
type mute struct {
	silent, full atomic.Bool
	hello        chan struct{}  // there is a connection
	subscribing  chan *muteConn // that subscribes
	resigning    chan struct{}
}

type muteConn struct {
	net.Conn
	mute   *mute
	once   sync.Once
	closed chan struct{}
}

func newMute() *mute {
	const many = 1000
	return &mute{
		hello: make(chan struct{}, many), subscribing: make(chan *muteConn, many), resigning: make(chan struct{}, many),
	}
}

func (m *mute) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &muteConn{Conn: c, mute: m, closed: make(chan struct{})}, err
}

func (c *muteConn) Read(b []byte) (n int, err error) {
	for {
		if n, err = c.Conn.Read(b); err != nil || !c.mute.silent.Load() {
			return n, err
		}
	}
}

func (c *muteConn) Write(b []byte) (int, error) {
	switch b := bytes.ToUpper(b); {
	case bytes.Contains(b, []byte("HELLO")):
		c.mute.hello <- struct{}{}
	case bytes.Contains(b, []byte("SUBSCRIBE")):
		c.mute.subscribing <- c
	case bytes.Contains(b, []byte("SMEMBERS")):
		c.mute.resigning <- struct{}{}
	}
	if !c.mute.full.Load() {
		return c.Conn.Write(b)
	}
	<-c.closed
	return 0, net.ErrClosed
}

func (c *muteConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// client returns one whose timeouts nobody lives to see.
func (m *mute) client(t *testing.T) *redis.Client {
	const long = time.Hour
	c := redis.NewClient(&redis.Options{
		Addr: miniredis.RunT(t).Addr(), Dialer: m.dial, ReadTimeout: long, WriteTimeout: long, DialTimeout: long,
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// soon returns what f does, which must not last.
func soon(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(testkit.Patience):
		t.Fatal("it does not return")
		return nil
	}
}

// What takes a context waits for a Redis that does not answer as long as that allows, and not for as
// long as the client's timeouts.
func TestContextEndsWaiting(t *testing.T) {
	m := newMute()
	client := m.client(t)
	hub, err := redisgroup.Open(t.Context(), client, settled())
	if err != nil {
		t.Fatal(err)
	}
	room, err := hub.Ordered("room")
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Claim(t.Context(), "bob", "1"); err != nil {
		t.Fatal(err)
	}
	m.silent.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for name, f := range map[string]func() error{
		"Claim":   func() error { return hub.Claim(ctx, "ann", "1") },
		"Release": func() error { return hub.Release(ctx, "bob", "1") },
		"Owner":   func() error { _, _, err := hub.Owner(ctx, "bob"); return err },
		"Who":     func() error { _, err := room.Who(ctx); return err },
		"Count":   func() error { _, err := room.Count(ctx); return err },
		"Open":    func() error { _, err := redisgroup.Open(ctx, client, settled()); return err },
	} {
		if err := soon(t, f); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want that the context has ended", name, err)
		}
	}
	_ = soon(t, func() error { return hub.Close(ctx) })
}

// Close returns when its context ends, whatever waits for a Redis that does not answer.
func TestCloseWhileRedisIsMute(t *testing.T) {
	for what, begin := range map[string]func(m *mute, n *node, wire *muteConn){
		"waiting for nothing": func(*mute, *node, *muteConn) {},
		"waiting for an answer": func(_ *mute, n *node, _ *muteConn) {
			n.dial().say("say red hello")
			testkit.Eventually(n.t, "it is on its way", func() bool { return n.hub.Stats().Queued > 0 })
		},
		"writing": func(m *mute, n *node, _ *muteConn) {
			m.full.Store(true)
			n.dial().say("join green")
			<-m.subscribing
		},
		"connecting": func(m *mute, _ *node, wire *muteConn) {
			for len(m.hello) > 0 {
				<-m.hello
			}
			_ = wire.Close()
			<-m.hello
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMute()
			n := startNode(t, m.client(t), settled())
			c := n.dial()
			c.say("ojoin blue")
			c.wants("joined true")
			wire := <-m.subscribing
			testkit.Eventually(t, "the subscription stands", func() bool { return redisgroup.Live(n.hub) == 1 })
			m.silent.Store(true)
			begin(m, n, wire)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := soon(t, func() error { return n.hub.Close(ctx) }); !errors.Is(err, context.Canceled) {
				t.Errorf("Close returned %v", err)
			}
		})
	}
}

// Close returns when its context ends while presence is given up.
func TestCloseCanceled(t *testing.T) {
	m := newMute()
	n := startNode(t, m.client(t), settled())
	testkit.Eventually(t, "there is a lease", func() bool { return redisgroup.Held(n.hub) })
	m.silent.Store(true)
	for len(m.hello) > 0 {
		<-m.hello
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-m.resigning:
		case <-m.hello: // on a new connection, as the lease is renewed on the other
		}
		cancel()
	}()
	if err := soon(t, func() error { return n.hub.Close(ctx) }); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v", err)
	}
}
