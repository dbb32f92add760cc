package looptest_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func echo(c *loop.Conn, msg []byte) error { return c.Send(msg) }

func echoServer() *loop.Server {
	return &loop.Server{
		NumLoops: 2,
		Codec:    codec.Lines{},
		Accept:   func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
}

func TestEchoInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := looptest.Start(t, echoServer()).Open()
		p.Send("he", "llo", "\n", "a\nb\n")
		if got := p.Received(); got != "hello\na\nb\n" {
			t.Errorf("received %q", got)
		}
		if p.Writes() != 2 {
			t.Errorf("%d writes, want one for each packet that ended a line", p.Writes())
		}
		p.Close()
		if !p.Ended() || p.Reason() != io.EOF {
			t.Errorf("ended %v with %v, want io.EOF", p.Ended(), p.Reason())
		}
	})
}

func TestEvictionInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := echoServer()
		srv.IdleTimeout = time.Hour
		p := looptest.Start(t, srv).Open()
		testkit.Pass(30 * time.Minute)
		p.Send("x")
		testkit.Pass(time.Hour - time.Nanosecond)
		if p.Ended() {
			t.Fatal("evicted early")
		}
		testkit.Pass(time.Millisecond)
		if !errors.Is(p.Reason(), loop.ErrIdle) || !p.Closed() {
			t.Fatalf("reason %v, closed %v", p.Reason(), p.Closed())
		}
	})
}

func TestStallAndBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, echoServer())
		p, q := srv.Open(), srv.Open()
		resume := srv.Stall(0)
		p.Send("p\n")
		q.Send("q\n")
		if got := p.Received() + q.Received(); len(got) != 2 {
			t.Errorf("with one of two loops stalled the peers received %q", got)
		}
		resume()
		if got := p.Received() + q.Received(); len(got) != 2 {
			t.Errorf("after the stall the peers received %q", got)
		}
		p.Block(2)
		p.Send("abc\n")
		if got := p.Received(); got != "ab" {
			t.Errorf("blocked after 2 bytes, the peer received %q", got)
		}
		p.Unblock()
		if got := p.Received(); got != "c\n" {
			t.Errorf("unblocked, the peer received %q", got)
		}
	})
}

// A handler that gives up when its output has to wait shows here, as on a real socket; so does one
// that pauses reading and relies on being told.
func TestSocketsAreNotUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushed := 0
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			c.OnFlushed(func() { flushed++ })
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				for range 10 {
					if err := c.Send(make([]byte, 100<<10)); err != nil {
						return err
					}
				}
				return nil
			})
		}})
		p := srv.Open()
		p.Send("x")
		if got := len(p.Received()); got != 1000<<10 || p.Writes() < 4 || flushed != 1 {
			t.Errorf("%d bytes in %d writes, flushed %d times", got, p.Writes(), flushed)
		}
	})
}

// Goroutines of one bubble may wait for several servers at a time.
func TestTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var both sync.WaitGroup
		for range 2 {
			srv := looptest.Start(t, echoServer())
			both.Go(func() {
				p := srv.Open()
				for range 20 {
					srv.Sleep(time.Second)
					p.Send("x\n")
				}
				if got := p.Received(); got != strings.Repeat("x\n", 20) {
					t.Errorf("received %q", got)
				}
			})
		}
		both.Wait()
	})
}

// A stalled loop is blocked as by a callback: see the slow turns.
func TestStallIsATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, echoServer())
		resume := srv.Stall(0)
		srv.Sleep(10 * time.Second)
		resume()
		slow := inside.Take[inside.ForMetrics[*loop.Conn, *loop.Loop]]().SlowTurns(srv.Loops()[0])
		if len(slow) == 0 || slow[0].Took < 10*time.Second {
			t.Errorf("slow turns %+v, want one of 10 s", slow)
		}
	})
}

// What is documented of the pieces that the server reads.
func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				got = append(got, len(msg))
				if string(msg) == "pause" {
					c.PauseRead()
					c.AfterFunc(time.Second, c.ResumeRead)
				}
				return nil
			})
		}})
		p := srv.Open()
		p.Send("1", "22", strings.Repeat("x", 300<<10))
		resume := srv.Stall(0)
		p.Send("1", "22", "333")
		resume()
		p.Send("pause", "1", "22", "333") // the first of them is read before the socket is paused
		srv.Sleep(2 * time.Second)
		if want := []int{1, 2, 256 << 10, 44 << 10, 6, 5, 1, 5}; !slices.Equal(got, want) {
			t.Errorf("messages of %v bytes, want %v", got, want)
		}
	})
}

// A test may ask any peer for its TLS.
func TestPlainPeerHasNoTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := looptest.Start(t, echoServer()).Open()
		if state, err := p.TLS(); state.HandshakeComplete || err != nil {
			t.Errorf("a plain peer has %+v, %v; want nothing", state, err)
		}
		p.Raw([]byte("raw\n"))
		if got := p.Received(); got != "raw\n" {
			t.Errorf("received %q, want the echo of what Raw sent", got)
		}
	})
}

// What a peer has sent before it closed arrives, though our answer does not any more.
func TestPeerSendsAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := ""
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if got += string(msg); string(msg) != "a" {
					return nil
				}
				testkit.Block(30 * time.Millisecond)
				return c.Send(msg)
			})
		}})
		p := srv.Open()
		p.Send("a\n", "b\n", "c\n") // while the handler is busy
		p.Close()
		srv.Sleep(time.Second)
		if got != "abc" {
			t.Errorf("the handler got %q, want abc", got)
		}
		if p.Reason() != io.EOF {
			t.Errorf("closed with %v, want EOF", p.Reason())
		}
	})
}
