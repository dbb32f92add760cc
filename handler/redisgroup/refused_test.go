package redisgroup

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// onLoop calls f for a connection, on its loop.
func onLoop(t *testing.T, f func(c *loop.Conn)) {
	t.Helper()
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		f(c)
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = srv.Wait()
	})
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

// One who is joining a room that is denied meanwhile is refused, whether the past was read before
// that or after.
func TestRefusedWhileJoining(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testkit.FreeAddr(t), DialTimeout: time.Second}) // nothing is there
	defer client.Close()
	h, err := Open(t.Context(), client, Config{Lazy: true, OnError: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer Die(h)
	denial := errors.New("NOPERM")
	read := func(j *joining) {
		if err := j.answered(redis.NewCmdResult([]any{"1-1", "0"}, nil)); err != nil {
			t.Error(err)
		}
	}
	for what, denied := range map[string]func(j *joining){
		"before it was read": func(j *joining) { j.room.peeked(Position{1, 1}); j.room.deny(denial); read(j) },
		"after it was read":  func(j *joining) { j.room.peeked(Position{1, 1}); read(j); j.room.deny(denial) },
	} {
		arrived := make(chan Arrival, 1)
		onLoop(t, func(c *loop.Conn) {
			r := h.acquire(h.keys.place(orderedRoom, what))
			j := &joining{room: r, ref: c.Ref()}
			j.then = func(_ *loop.Conn, a Arrival) { arrived <- a }
			h.join(c).rooms[r] = j
			r.begin(j)
			denied(j)
		})
		select {
		case a := <-arrived:
			var e *SubscribeError
			if !errors.As(a.Err, &e) || e.Room != what || e.Err != denial {
				t.Errorf("%s: it arrived with %+v", what, a)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: it never arrives", what)
		}
	}
}
