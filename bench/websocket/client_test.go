package websocket

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// A bot is a connection of websocket.Client to somebody else's server.
type bot struct {
	conn   *loop.Conn
	msgs   chan message
	pongs  chan string
	closed chan error
}

type message struct {
	kind websocket.Kind
	data []byte
}

func (b *bot) OnMessage(c *loop.Conn, msg []byte) error {
	b.msgs <- message{websocket.Of(c).Kind(), bytes.Clone(msg)}
	return nil
}

func (b *bot) OnClose(_ *loop.Conn, err error) { b.closed <- err }

// dialing returns a loop that dials, until the test ends.
func dialing(t testing.TB) *loop.Loop {
	t.Helper()
	srv := &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 4 * maxMessage}}
	start(t, srv)
	return srv.Loops()[0]
}

// dialBot connects, and returns when that has come to something.
func dialBot(t testing.TB, l *loop.Loop, cfg *websocket.Client, settings *tls.Config) (*bot, error) {
	t.Helper()
	b := &bot{msgs: make(chan message, 100), pongs: make(chan string, 100), closed: make(chan error, 1)}
	opened := make(chan error, 1)
	loop.Dialer{Codec: cfg, TLS: settings}.Dial(l, cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
		if b.conn = c; err == nil {
			websocket.Of(c).OnPong = func(data []byte) { b.pongs <- string(data) }
		}
		opened <- err
		return b
	})
	return b, next(t, opened)
}

func next[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
	}
	return v
}

// do runs f on the loop.
func (b *bot) do(t testing.TB, f func(c *loop.Conn) error) {
	t.Helper()
	done := make(chan error, 1)
	if err := b.conn.Ref().Tell(func(c *loop.Conn) { done <- f(c) }); err != nil {
		t.Fatal(err)
	}
	if err := next(t, done); err != nil {
		t.Fatal(err)
	}
}

// send sends msg, and expects it back.
func (b *bot) send(t testing.TB, kind websocket.Kind, msg []byte) {
	t.Helper()
	b.do(t, func(c *loop.Conn) error {
		if kind == websocket.Text {
			return websocket.SendText(c, msg)
		}
		return websocket.SendBinary(c, msg)
	})
	if got := next(t, b.msgs); got.kind != kind || !bytes.Equal(got.data, msg) {
		t.Fatalf("%d bytes of %v: %d bytes of %v came back", len(msg), kind, len(got.data), got.kind)
	}
}

// Servers of others: messages of all lengths in both directions, compressed or not, in fragments;
// pings both ways, and both sides close.
func TestClient(t *testing.T) {
	for name, serve := range strangers {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, compress bool) {
				url, heard := serve(t, compress)
				l, cfg := dialing(t), &websocket.Client{URL: url, MaxMessage: maxMessage, MaxFrame: maxMessage, Compress: compress}
				b, err := dialBot(t, l, cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				b.do(t, func(c *loop.Conn) error {
					if agreed := websocket.Of(c).Compressed(); agreed != compress {
						t.Errorf("compressed %t", agreed)
					}
					return nil
				})
				for _, n := range sizes {
					b.send(t, websocket.Text, payload(n, true))
					b.send(t, websocket.Binary, payload(n, false))
				}
				clientControl(t, b, heard)
				if b, err = dialBot(t, l, cfg, nil); err != nil {
					t.Fatal(err)
				}
				b.do(t, func(c *loop.Conn) error { return c.Send([]byte("please close")) })
				e, ok := errors.AsType[*websocket.CloseError](next(t, b.closed))
				if !ok || e.Code != 4001 || e.Reason != "you asked for it" || !e.ByPeer {
					t.Errorf("closed with %v", e)
				}
				if s := next(t, heard); !strings.HasPrefix(s, "closed 4001") {
					t.Errorf("heard %q, not our answer to its close", s)
				}
			})
		})
	}
}

// clientControl pings, is pinged, and closes.
func clientControl(t *testing.T, b *bot, heard chan string) {
	b.do(t, func(c *loop.Conn) error { return websocket.Ping(c, []byte("there?")) })
	if s := next(t, b.pongs); s != "there?" {
		t.Errorf("pong %q", s)
	}
	b.do(t, func(c *loop.Conn) error { return c.Send([]byte("please ping")) })
	if s := next(t, heard); s != "pong are you there?" {
		t.Errorf("heard %q", s)
	}
	b.do(t, func(c *loop.Conn) error { websocket.Close(c, 4005, "bye"); return nil })
	if s := next(t, heard); s != "closed 4005 bye" {
		t.Errorf("heard %q", s)
	}
	if e, ok := errors.AsType[*websocket.CloseError](next(t, b.closed)); !ok || e.Code != 4005 || e.ByPeer {
		t.Errorf("closed with %v", e)
	}
}

// zlib refuses what refers further back than the window that was agreed on, which is the server's
// to choose.
func TestClientWindow(t *testing.T) {
	for bits := 9; bits <= 15; bits++ { // zlib cannot inflate with 8
		url, _ := nodeServer(t, true, fmt.Sprint(bits))
		b, err := dialBot(t, dialing(t), &websocket.Client{URL: url, MaxMessage: maxMessage, Compress: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		noise := payload(1<<bits, false)
		b.send(t, websocket.Binary, bytes.Repeat([]byte("loopwheel "), 100_000))
		b.send(t, websocket.Binary, bytes.Join([][]byte{noise, make([]byte, 7<<bits), noise, noise}, nil))
	}
}
