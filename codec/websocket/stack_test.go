package websocket_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// linesInMessages is a protocol of lines inside WebSocket messages, as MQTT over WebSocket is one
// of packets.
func linesInMessages() codec.Codec {
	return codec.Stack{Outer: &websocket.Codec{Binary: true}, Inner: codec.Lines{Max: 1000}}
}

// stacked runs a server of such lines in virtual time.
func stacked(t *testing.T, srv *loop.Server, onLine loop.HandlerFunc, f func(srv *looptest.Server, p *wstest.Peer)) {
	synctest.Test(t, func(t *testing.T) {
		srv.NumLoops, srv.Codec = 1, linesInMessages()
		srv.Accept = func(*loop.Conn) loop.Handler { return onLine }
		s := looptest.Start(t, srv)
		f(s, wstest.Open(t, s, "ws://example.com/", nil))
	})
}

func TestStackOfLines(t *testing.T) {
	stacked(t, &loop.Server{}, func(c *loop.Conn, line []byte) error {
		if websocket.Of(c) == nil {
			return errors.New("Of finds no WebSocket below the stack")
		}
		return c.Send(line)
	}, func(_ *looptest.Server, p *wstest.Peer) {
		p.SendBinary("one\ntwo\nth")
		if got, want := p.Received(), []string{"one\n", "two\n"}; !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
		p.SendBinary("ree\n")
		if got, want := p.Received(), []string{"three\n"}; !slices.Equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
	})
}

// A message with many lines gives way to the others after each share of the loop, and waits whole
// where reading is paused.
func TestStackPaused(t *testing.T) {
	var got []string
	var conn *loop.Conn
	stacked(t, &loop.Server{}, func(c *loop.Conn, line []byte) error {
		conn = c
		got = append(got, string(line))
		c.PauseRead()
		return nil
	}, func(srv *looptest.Server, p *wstest.Peer) {
		p.SendBinary("a\nb\nc\n")
		p.SendBinary("d\ne")
		for i, want := range []string{"a", "b", "c", "d"} {
			if len(got) != i+1 || got[i] != want {
				t.Fatalf("after %d lines: %q, want %s last", i+1, got, want)
			}
			_ = srv.Loops()[0].Post(func() { conn.ResumeRead() })
			synctest.Wait()
		}
	})
}

// The time for the end of a frame counts for the inner frames, too.
func TestStackFrameTimeout(t *testing.T) {
	stacked(t, &loop.Server{Timeouts: loop.Timeouts{Frame: 5 * time.Second}}, func(c *loop.Conn, line []byte) error {
		return c.Send(line)
	}, func(srv *looptest.Server, p *wstest.Peer) {
		p.SendBinary("whole\nhal")
		srv.Sleep(4 * time.Second)
		if p.Reason() != nil {
			t.Fatalf("closed after 4 s: %v", p.Reason())
		}
		srv.Sleep(2 * time.Second)
		if !errors.Is(p.Reason(), loop.ErrSlowFrame) {
			t.Errorf("closed with %v, want ErrSlowFrame", p.Reason())
		}
	})
}

func TestStackTooLong(t *testing.T) {
	stacked(t, &loop.Server{}, func(*loop.Conn, []byte) error { return nil }, func(_ *looptest.Server, p *wstest.Peer) {
		for range 11 {
			p.SendBinary(strings.Repeat("x", 100))
		}
		if !errors.Is(p.Reason(), codec.ErrTooLong) {
			t.Errorf("closed with %v, want ErrTooLong", p.Reason())
		}
	})
}

// A broadcast to connections with such a stack is encoded once.
func TestStackBroadcast(t *testing.T) {
	var keys []any
	stacked(t, &loop.Server{}, func(c *loop.Conn, _ []byte) error {
		keys = append(keys, c.Codec().(handler.FrameKeyer).FrameKey())
		return nil
	}, func(srv *looptest.Server, p *wstest.Peer) {
		p.SendBinary("a\n")
		wstest.Open(t, srv, "ws://example.com/", nil).SendBinary("b\n")
		if len(keys) != 2 || keys[0] == nil || keys[0] != keys[1] {
			t.Errorf("keys %v, want two equal ones", keys)
		}
	})
}

// banner is lines after one of its own.
type banner struct{ codec.Lines }

func (banner) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	return append(dst, "hello\n"...), 0, nil
}

func (banner) Opening() error { return nil }
func (banner) Opened() error  { return nil }

// Inner's banner comes before what Accept sends, as it does without a Stack.
func TestStackGreetsFirst(t *testing.T) {
	for name, s := range map[string]codec.Stack{
		"two":              {Outer: &websocket.Codec{Binary: true}, Inner: banner{}},
		"a Stack as Inner": {Outer: &websocket.Codec{Binary: true}, Inner: codec.Stack{Outer: codec.Raw{}, Inner: banner{}}},
		"a Stack as Outer": {Outer: codec.Stack{Outer: &websocket.Codec{Binary: true}, Inner: codec.Raw{}}, Inner: banner{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: s, Accept: func(c *loop.Conn) loop.Handler {
					for _, line := range []string{"one", "not a line\n", "two"} {
						if err := c.Send([]byte(line)); (err != nil) != strings.HasSuffix(line, "\n") {
							t.Errorf("Send(%q) = %v", line, err)
						}
					}
					return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
				}})
				p := wstest.Open(t, srv, "ws://example.com/", nil)
				p.SendBinary("three\n")
				if got, want := p.Received(), []string{"hello\n", "one\n", "two\n", "three\n"}; !slices.Equal(got, want) {
					t.Errorf("received %q, want %q", got, want)
				}
			})
		})
	}
}

// A client with a stack speaks to a server with one, over a real socket.
func TestStackOfAClient(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: linesInMessages(), NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
	}}
	serveUntilEnd(t, srv)
	answers := make(chan string, 10)
	d := loop.Dialer{
		Codec: codec.Stack{Outer: &websocket.Client{URL: "ws://127.0.0.1/", Binary: true}, Inner: codec.Lines{}},
	}
	_ = srv.Loops()[0].Post(func() {
		d.Dial(srv.Loops()[0], "tcp://"+srv.LocalAddr().String(), func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				answers <- fmt.Sprint(err)
				return nil
			}
			for _, line := range strings.Fields("one two three") {
				_ = c.Send([]byte(line))
			}
			return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error { answers <- string(line); return nil })
		})
	})
	for _, want := range []string{"one", "two", "three"} {
		if got := <-answers; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
