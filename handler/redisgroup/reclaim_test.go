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
)

// A slowConn keeps the first command of all that has what in it, while it is told to.
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
	h.keeper.rejoin(h.keeper.name())
	<-until // it is claimed again now
	released := make(chan struct{})
	go func() {
		defer close(released)
		_ = h.Release(t.Context(), "my-name", "me")
	}()
	soon(t, "it is being released", func() bool { return Claimed(h, "my-name") == "" })
	until <- struct{}{}
	<-released
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if owner, taken, err := h.Owner(t.Context(), "my-name"); err == nil && !taken {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("it is %q's, %v", owner, err)
		}
	}
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

// A grant that is heard of when the lease has run out since, as the process was stopped, is asked
// for again: the name may be another's.
func TestGrantAfterTheLease(t *testing.T) {
	m, lock := miniredis.RunT(t), new(sync.RWMutex)
	client := redis.NewClient(&redis.Options{
		Addr: m.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return heldConn{c, lock}, err
		},
		ReadTimeout: time.Minute,
	})
	defer client.Close()
	h, err := Open(t.Context(), client, Config{Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	if err := h.Claim(t.Context(), "first", "me"); err != nil { // which has Redis know the script
		t.Fatal(err)
	}
	lock.Lock()
	claimed := make(chan error, 1)
	go func() { claimed <- h.Claim(t.Context(), "my-name", "me") }()
	soon(t, "Redis has granted it", func() bool { return m.HGet(h.keys.claims(), "my-name") != "" })
	other := openOn(t, m, redis.Options{})
	soon(t, "another claims it", func() bool { return other.Claim(t.Context(), "my-name", "other") == nil })
	lock.Unlock()
	if err := <-claimed; !errors.Is(err, ErrTaken) {
		t.Errorf("it was told %v, and another has the name", err)
	}
}
