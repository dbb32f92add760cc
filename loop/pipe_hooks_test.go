package loop_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Hooks that a user sets on a connection of a pipe are called, and the pipe does its work beside
// them.
func TestPipeBesideHooks(t *testing.T) {
	const piece, rest = 16 << 10, 20
	var conns []*loop.Conn
	var before, high, flushed, ended int
	srv := &loop.Server{Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(*loop.Loop) {
			for _, c := range conns { // a pipe takes the place of these
				c.OnHighWater(1, func() { before++ })
				c.OnFlushed(func() { before++ })
				c.OnEOF(func() { before++; c.Close() })
			}
			loop.Pipe(conns[0], conns[1], loop.PipeConfig{})
			conns[1].OnHighWater(20<<10, func() { high++ })
			conns[1].OnFlushed(func() { flushed++ })
			conns[0].OnEOF(func() {
				ended++
				conns[1].Write([]byte("the end"))
			})
		})
		q.Block(0)
		for range rest {
			p.Send(strings.Repeat("x", piece))
		}
		tell(srv, q, func(c *loop.Conn) {
			if n := c.Pending(); n > 64<<10+piece || high != 1 || flushed != 0 {
				t.Errorf("%d bytes wait in the side that takes nothing; high water %d times, want 1, and flushed %d times",
					n, high, flushed)
			}
		})
		q.Unblock()
		if got := len(q.Received()); got != rest*piece || flushed == 0 {
			t.Errorf("%d bytes arrived, want %d; flushed %d times", got, rest*piece, flushed)
		}
		p.CloseWrite()
		if got := q.Received(); got != "the end" || ended != 1 {
			t.Errorf("%q arrived after the end, which the hook was told of %d times", got, ended)
		}
		q.Send("answer")
		if got := p.Received(); got != "answer" {
			t.Errorf("%q came back", got)
		}
		if q.CloseWrite(); !p.Closed() || !q.Closed() {
			t.Error("the pipe does not end")
		}
		if before != 0 {
			t.Errorf("hooks from before the pipe were called %d times", before)
		}
	})
}

// A peer that has ended its output before the pipe began, and whose connection OnEOF has kept open,
// counts in it as one that ends it now: after what was not a frame yet.
func TestPipeAfterEOF(t *testing.T) {
	for i := range 4 {
		inHook, unfinished := i&1 != 0, []string{"", "no line"}[i/2]
		var conns []*loop.Conn
		pipe := func() { loop.Pipe(conns[0], conns[1], loop.PipeConfig{}) }
		srv := &loop.Server{Codec: codec.Lines{}, Accept: with(func(c *loop.Conn) {
			c.OnEOF(func() {
				if inHook {
					pipe()
				}
			})
			conns = append(conns, c)
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, q := srv.Open(), srv.Open()
			p.Send("line\n" + unfinished)
			p.CloseWrite()
			if !inHook {
				srv.Do(0, func(*loop.Loop) { pipe() })
			}
			if got := q.Received(); got != unfinished {
				t.Errorf("in the hook: %v; %q was passed on, want %q", inHook, got, unfinished)
			}
			tell(srv, q, func(c *loop.Conn) {
				if _, err := c.Write(nil); err != loop.ErrClosed {
					t.Errorf("in the hook: %v; the end was not passed on", inHook)
				}
			})
			q.Send("answer")
			if got := p.Received(); got != "answer" {
				t.Errorf("%q came back", got)
			}
			if q.CloseWrite(); !p.Closed() || !q.Closed() {
				t.Error("the pipe does not end")
			}
		})
	}
}

// A codec would take from what is passed on what is not in its frames.
func TestPipeHasNoCodec(t *testing.T) {
	setup := func(a, b *loop.Conn) {
		for _, c := range []*loop.Conn{a, b} {
			mustPanicWith(t, "Conn.SetCodec on a connection of a Pipe", func() { c.SetCodec(codec.Lines{}) })
		}
		a.PauseRead()
	}
	pipeOf(t, loop.PipeConfig{}, setup, func(t *testing.T, srv *looptest.Server, p, q *looptest.Peer) {
		p.Send("a\nb\nc")
		if tell(srv, p, (*loop.Conn).ResumeRead); q.Received() != "a\nb\nc" {
			t.Error("other bytes were passed on")
		}
	})
}

// What cannot be piped says so.
func TestPipeMistakes(t *testing.T) {
	srv := &loop.Server{NumLoops: 2, Listeners: []loop.Listener{{Addr: "udp://127.0.0.1:0"}}}
	var conns []*loop.Conn
	srv.Accept = with(func(c *loop.Conn) { conns = append(conns, c) })
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for range 6 {
			srv.Open()
		}
		u := srv.OpenUDP(1)
		u.Send("x")
		udp := conns[len(conns)-1]
		var here, there []*loop.Conn
		for _, c := range conns[:6] {
			if c.Loop() == udp.Loop() {
				here = append(here, c)
			} else {
				there = append(there, c)
			}
		}
		srv.Do(udp.Loop().Index(), func(*loop.Loop) {
			a, b, c := here[0], here[1], here[2]
			mustPanicWith(t, "two connections of one loop", func() { loop.Pipe(a, a, loop.PipeConfig{}) })
			mustPanicWith(t, "two connections of one loop", func() { loop.Pipe(a, there[0], loop.PipeConfig{}) })
			mustPanicWith(t, "UDP session", func() { loop.Pipe(a, udp, loop.PipeConfig{}) })
			mustPanicWith(t, "UDP session", func() { loop.Pipe(udp, a, loop.PipeConfig{}) })
			mustPanicWith(t, "negative IdleTimeout", func() { loop.Pipe(a, b, loop.PipeConfig{IdleTimeout: -1}) })
			loop.Pipe(a, b, loop.PipeConfig{})
			mustPanicWith(t, "in one already", func() { loop.Pipe(a, c, loop.PipeConfig{}) })
			mustPanicWith(t, "in one already", func() { loop.Pipe(c, a, loop.PipeConfig{}) })
		})
	})
}

// OnClosing says nothing into the stream of a Pipe.
func TestPipeHasNoLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1,
			Hooks:  loop.Hooks{OnClosing: func(c *loop.Conn, err error) { _ = c.Send([]byte("last words")) }},
			Accept: pipedToBackend})
		back := srv.Backend("tcp", "b:1")
		p := srv.Open()
		b := back.Accept()
		p.Send("hello")
		srv.Sleep(2 * time.Minute)
		if got, answer := b.Received(), p.Received(); got != "hello" || answer != "" || !p.Closed() {
			t.Errorf("the sides got %q and %q, closed %v; want hello and nothing, closed", got, answer, p.Closed())
		}
	})
}

// In a Pipe, hooks that would write into the stream do not run: neither OnIdle nor OnDrain.
func TestPipeEndsWhatWritesByItself(t *testing.T) {
	var conns []*loop.Conn
	ping := func(c *loop.Conn) { _, _ = c.Write([]byte("PING")) }
	srv := &loop.Server{Hooks: loop.Hooks{OnDrain: ping}, Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.IdleRead, time.Minute, func(int) { ping(c) })
		conns = append(conns, c)
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(*loop.Loop) { loop.Pipe(conns[0], conns[1], loop.PipeConfig{}) })
		srv.Sleep(time.Hour)
		tell(srv, p, func(c *loop.Conn) { c.SetBusy(true) })
		srv.Shutdown()
		if got := p.Received() + q.Received(); got != "" {
			t.Errorf("the peers got %q", got)
		}
		p.Close()
	})
}

// pipedToBackend forwards each connection to the backend b:1, and ends it after a minute of silence.
func pipedToBackend(c *loop.Conn) loop.Handler {
	loop.Dialer{}.Dial(c.Loop(), "tcp://b:1", func(b *loop.Conn, err error) loop.Handler {
		loop.Pipe(c, b, loop.PipeConfig{IdleTimeout: time.Minute})
		return silent(b)
	})
	return silent(c)
}
