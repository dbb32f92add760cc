package loop_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// startTold returns a server of one loop whose mailbox holds ten, and a connection of it.
func startTold(t *testing.T) (srv *looptest.Server, conn *loop.Conn) {
	srv = looptest.Start(t, &loop.Server{NumLoops: 1, MaxMailbox: 10, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		conn = c
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
	}})
	srv.Open()
	return srv, conn
}

// What is told and posted eventually is taken by a full mailbox, in its place.
func TestTellEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := startTold(t)
		var got []int
		resume := srv.Stall(0)
		full := 0
		for i := range 30 {
			note := func() { got = append(got, i) }
			if i%2 == 1 {
				if err := c.Ref().TellEventually(func(*loop.Conn) { note() }); err != nil {
					t.Error(err)
				}
			} else if err := srv.Loops()[0].PostEventually(note); err != nil {
				t.Error(err)
			}
			if srv.Loops()[0].Post(func() {}) != nil {
				full++
			}
		}
		resume()
		if !slices.IsSorted(got) || len(got) != 30 || full < 20 {
			t.Errorf("%v ran; the mailbox was full %d times", got, full)
		}
		srv.Do(0, func(*loop.Loop) { c.Close() })
		if err := c.Ref().TellEventually(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		_ = srv.Stop()
		if err := srv.Loops()[0].PostEventually(func() {}); !errors.Is(err, loop.ErrServerClosed) {
			t.Errorf("when the loop has ended: %v", err)
		}
	})
}

// Of the two functions of TellOr one is called, whatever happens, and a panic in the first closes
// the connection.
func TestTellOr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c := startTold(t)
		told, dropped := 0, 0
		tell := func(f func(*loop.Conn)) error {
			return c.Ref().TellOr(func(c *loop.Conn) { told++; f(c) }, func() { dropped++ })
		}
		resume := srv.Stall(0)
		for _, f := range []func(*loop.Conn){func(*loop.Conn) {}, func(*loop.Conn) { panic("told") }, func(*loop.Conn) {}} {
			if err := tell(f); err != nil {
				t.Error(err)
			}
		}
		resume()
		if told != 2 || dropped != 1 {
			t.Errorf("%d were told, %d dropped", told, dropped)
		}
		if err := tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) || told+dropped != 3 {
			t.Errorf("closed: %v", err)
		}
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics", n)
		}
	})
}

// Work in pieces keeps its place in the mailbox, and what others post waits; numbers tell what is
// directly behind.
func TestPostPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := startTold(t)
		l, got := srv.Loops()[0], ""
		resume := srv.Stall(0)
		pieces := 0
		first, err := l.PostPieces(func() bool { got += "p"; pieces++; return pieces < 3 })
		if err != nil {
			t.Error(err)
		}
		_ = l.Post(func() { got += "x" })
		third, _ := l.PostPieces(func() bool { got += "q"; return false })
		fourth, _ := l.PostPieces(func() bool { got += "r"; return false })
		resume()
		if got != "pppxqr" || third != first+2 || fourth != third+1 {
			t.Errorf("%s ran; numbers %d, %d, %d", got, first, third, fourth)
		}
	})
}

// Each who waits for room is told once, when no more than that is pending.
func TestWhenPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var conn *loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			conn = c
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		}})
		p := srv.Open()
		p.Block(600) // so that 400 wait
		got := ""
		srv.Do(0, func(*loop.Loop) {
			_, _ = conn.Write(make([]byte, 1000))
			if !conn.WhenPending(1000, nil) || conn.WhenPending(999, nil) || conn.WhenPending(100, func() { got += "a" }) ||
				conn.WhenPending(500, func() { got += "b" }) {
				t.Error("1000 bytes are pending")
			}
		})
		srv.Sleep(time.Second)
		if got != "b" {
			t.Errorf("%q was told while 400 bytes are pending", got)
		}
		p.Unblock()
		srv.Sleep(time.Second)
		if got != "ba" {
			t.Errorf("%q was told at last", got)
		}
	})
}
