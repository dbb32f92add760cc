package handler_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// The cost of Enter, with the lock of all loops held, does not grow with the keys of a connection.
func TestRegistryOfManyKeys(t *testing.T) {
	const n = 50_000 // by a search among them this would take minutes
	bubble(t, func(t *testing.T) {
		r := handler.NewRegistry[int]()
		srv := startLines(t, 1, handler.Shared(loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			for i := range n {
				r.Enter(i, c)
			}
			for i := range n / 2 {
				r.Leave(i, c)
			}
			return nil
		})))
		p, q := srv.Open(), srv.Open()
		p.Send("all\n")
		if got := r.Len(); got != n/2 {
			t.Errorf("%d keys, want %d", got, n/2)
		}
		q.Send("all\n")
		p.Close()
		if got := r.Len(); got != n/2 {
			t.Errorf("%d keys after the first connection has closed, want %d", got, n/2)
		}
		q.Close()
		if got := r.Len(); got != 0 {
			t.Errorf("%d keys after both have closed, want 0", got)
		}
	})
}

// entersInOnClose enters its key once more in OnClose.
type entersInOnClose struct{ r *handler.Registry[string] }

func (h entersInOnClose) OnMessage(c *loop.Conn, msg []byte) error {
	h.r.Enter("key", c)
	return nil
}

func (h entersInOnClose) OnClose(c *loop.Conn, err error) { h.r.Enter("key", c) }

func TestRegistryEnterInOnClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := handler.NewRegistry[string]()
		srv := startLines(t, 1, handler.Shared(entersInOnClose{r}))
		p, q := srv.Open(), srv.Open()
		p.Send("x\n")
		q.Send("x\n")
		before := r.Get("key")
		p.Close()
		if got := r.Get("key"); got != before || got == (loop.Ref{}) {
			t.Errorf("the key belongs to %v, want the open connection %v", got, before)
		}
	})
}

// A hook of the connection that stops the Link while it sends what was kept.
func TestLinkStoppedWhileItSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var k *linked
		k = newLinked(t, handler.LinkConfig{Backlog: 10, Accept: func(c *loop.Conn) loop.Handler {
			c.OnHighWater(1, func() { k.link.Stop() })
			return echoes(c)
		}})
		k.srv.Sleep(time.Second)
		k.backend.Accept().Close()
		for i := range 3 {
			k.send(fmt.Sprint("kept ", i), nil)
		}
		k.srv.Sleep(time.Minute)
		k.do(func() { testkit.Want(t, "messages kept after Stop", k.link.Stats().Backlog, 0) })
		if got := k.srv.Stats().Panics; got != 0 {
			t.Errorf("%d panics, want 0", got)
		}
	})
}

// What is sent while the connection closes goes out on the next one.
func TestLinkKeepsWhileTheConnectionCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newLinked(t, handler.LinkConfig{Backlog: 10})
		k.srv.Sleep(time.Second)
		p := k.backend.Accept()
		p.Block(0)
		k.send("never taken", nil)
		k.do(func() { k.link.Conn().Close() })
		k.send("next", nil)
		k.srv.Sleep(time.Minute)
		q := k.backend.Accept()
		if q == nil {
			t.Fatal("it does not dial again")
		}
		wantReceived(t, q, "next\n")
	})
}

// Nor is it lost while a closing handshake is under way.
func TestLinkKeepsOverAClosingHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wire := &websocket.Client{URL: "ws://backend:1/"}
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: echoes})
		backend := srv.Backend("tcp", "backend:1")
		var link *handler.Link
		srv.Do(0, func(l *loop.Loop) {
			link = handler.NewLink(l, handler.LinkConfig{Addr: "tcp://backend:1", Dialer: loop.Dialer{Codec: wire}, Accept: echoes, Backlog: 20})
		})
		answer := func() *looptest.Peer {
			srv.Sleep(time.Second)
			p := backend.Accept()
			if p == nil {
				t.Fatal("nobody dials")
			}
			upgrade(t, p)
			return p
		}
		answer()
		srv.Do(0, func(*loop.Loop) {
			websocket.Close(link.Conn(), websocket.StatusNormal, "")
			for i := range 18 {
				if err := link.Send(fmt.Append(nil, "kept ", i)); err != nil {
					t.Errorf("Send %d: %v", i, err)
				}
			}
		})
		srv.Sleep(websocket.CloseWait + time.Second)
		p := answer()
		srv.Sleep(time.Millisecond)
		if got := p.Received(); !unmasks(got, "kept 17") {
			t.Errorf("the next connection gets %q, want kept 0 to 17", got)
		}
		srv.Do(0, func(*loop.Loop) { testkit.Want(t, "messages dropped", link.Stats().Dropped, 0) })
	})
}

// unmasks reports whether a client's frames hold a message.
func unmasks(wire, want string) bool {
	for len(wire) > 6 {
		n := int(wire[1] & 0x7f)
		msg := []byte(wire[6 : 6+n])
		for i := range msg {
			msg[i] ^= wire[2+i%4]
		}
		if string(msg) == want {
			return true
		}
		wire = wire[6+n:]
	}
	return false
}

// upgrade answers a WebSocket client's handshake.
func upgrade(t *testing.T, p *looptest.Peer) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(p.Received())))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	p.Send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
}

// Bytes that Append returns with an error are the user's.
func TestTypedKeepsNoForeignBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		raw := []byte("precious bytes of the user")
		bad := handler.Typed[int]{Append: func([]byte, int) ([]byte, error) { return raw, errors.New("no") }}
		good := handler.Typed[int]{Append: func(dst []byte, v int) ([]byte, error) { return append(dst, "message"...), nil }}
		srv := startLines(t, 1, handler.Shared(loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
			if err := bad.Send(c, 1); err == nil {
				t.Error("Send: no error")
			}
			return good.Send(c, 1)
		})))
		p := srv.Open()
		p.Send("x\n")
		wantReceived(t, p, "message\n")
		if want := "precious bytes of the user"; string(raw) != want {
			t.Errorf("the user's bytes are %q, want %q", raw, want)
		}
	})
}

// Messages that wait for a slow member are encoded when they are sent.
func TestGroupKeepOverAChangeOfCodec(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{Backlog: 10})
		var conn *loop.Conn
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			conn = c
			g.Join(c)
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		})
		p := srv.Open()
		p.Block(0)
		srv.Do(0, func(*loop.Loop) { _, _ = conn.Write(append(bytes.Repeat([]byte("x"), 128<<10), '\n')) })
		for _, msg := range []string{"one", "two"} {
			if err := g.Broadcast([]byte(msg)); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Pass(0)
		srv.Do(0, func(*loop.Loop) { conn.SetCodec(codec.Length{Size: 1}) })
		p.Unblock()
		testkit.Pass(time.Second)
		got := p.Received()
		if want := "\n\x03one\x03two"; len(got) < len(want) || got[len(got)-len(want):] != want {
			t.Errorf("the end of what it gets is %q, want %q", got[max(0, len(got)-20):], want)
		}
	})
}

// Settings that hardly anybody uses do what their documents say.
func TestOddSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{PerSecond: 1e-9, Burst: 1000}))
		p := srv.Open()
		for range 1000 {
			p.Send("x\n")
		}
		wantOpen(t, p)
		p.Send("x\n")
		wantReason(t, p, handler.ErrRateLimit)
	})
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Heartbeat{Interval: math.MaxInt64, Jitter: time.Hour}))
		p := srv.Open()
		testkit.Pass(time.Hour)
		wantOpen(t, p)
	})
}

// A slow rate excuses the time of a blocked loop for longer than a second after it.
func TestSlowLimitAfterABlockedLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Limit{PerSecond: 0.5}))
		p := srv.Open()
		_ = srv.Loops()[0].Post(func() { testkit.Block(12500 * time.Millisecond) })
		for range 20 {
			testkit.Pass(2 * time.Second)
			p.Send("x\n")
		}
		wantOpen(t, p)
	})
}

// A heartbeat leaves a closing handshake to the time that it has of its own.
func TestHeartbeatInAClosingHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		beat := handler.Heartbeat{Interval: 400 * time.Millisecond, Ping: websocket.EmptyPing[*loop.Conn]}
		var reason error
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: handler.Chain(func(c *loop.Conn) loop.Handler {
			c.AfterClose(func(err error) { reason = err })
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				websocket.Close(c, 4001, "bye")
				return nil
			})
		}, beat)})
		p := wstest.Open(t, srv, "ws://example.com/", nil)
		p.Mute()
		p.Send("close")
		testkit.Pass(2 * time.Second)
		p.CloseWith(4001, "bye")
		var closed *websocket.CloseError
		if !errors.As(reason, &closed) || closed.Code != 4001 {
			t.Errorf("closed with %v, want code 4001", reason)
		}
	})
}

// A heartbeat that is shorter than the handshake takes begins after it.
func TestHeartbeatBeforeTheUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		beat := handler.Heartbeat{Interval: 100 * time.Millisecond, Ping: websocket.EmptyPing[*loop.Conn]}
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: handler.Chain(echoes, beat)})
		raw := srv.Open()
		testkit.Pass(time.Second)
		wantOpen(t, raw)
		p := wstest.Upgrade(t, raw, "ws://example.com/", nil)
		p.Send("hello")
		if got := p.Received(); !slices.Equal(got, []string{"hello"}) {
			t.Errorf("received %q, want hello", got)
		}
	})
}
