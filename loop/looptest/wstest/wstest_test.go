package wstest_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// echo sends each message back as what it was. "bye" ends the connection.
func echo(c *loop.Conn, msg []byte) error {
	switch {
	case string(msg) == "bye":
		return &websocket.CloseError{Code: 4001, Reason: "as you wish"}
	case websocket.Of(c).Kind() == websocket.Binary:
		return websocket.SendBinary(c, msg)
	}
	return websocket.SendText(c, msg)
}

// A test of a WebSocket server; its name would begin with Test.
func Example() {
	testEcho := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, &loop.Server{
				Codec:  &websocket.Codec{},
				Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
			})
			p := wstest.Open(t, srv, "ws://example.com/chat", nil)
			p.Send("hello", "world")
			if got := p.Received(); !slices.Equal(got, []string{"hello", "world"}) {
				t.Errorf("got %q", got)
			}
		})
	}
	_ = testEcho
}

func run(t *testing.T, srv *loop.Server, f func(t *testing.T, srv *looptest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if srv.Codec == nil {
			srv.Codec = &websocket.Codec{}
		}
		if srv.Accept == nil {
			srv.Accept = func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
		}
		f(t, looptest.Start(t, srv))
	})
}

func wants(t *testing.T, p *wstest.Peer, want ...wstest.Message) {
	t.Helper()
	if got := p.Messages(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}

func TestMessages(t *testing.T) {
	run(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := wstest.Open(t, srv, "/chat", nil)
		long := strings.Repeat("x", 60<<10)
		p.Send("hello", long)
		p.SendBinary("\x00\xff")
		p.Ping("there?")
		wants(t, p, wstest.Message{Kind: websocket.Text, Data: "hello"}, wstest.Message{Kind: websocket.Text, Data: long}, wstest.Message{Kind: websocket.Binary, Data: "\x00\xff"})
		p.Write([]byte("\x01\x83\x00\x00\x00\x00fra")) // two fragments, masked with zeros
		p.Write([]byte("\x80\x86\x00\x00\x00\x00gments"))
		if got := p.Received(); !slices.Equal(got, []string{"fragments"}) {
			t.Errorf("got %q", got)
		}
		wants(t, p) // all was returned before
	})
}

// Closing by either side ends as RFC 6455 has it.
func TestClose(t *testing.T) {
	run(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := wstest.Open(t, srv, "/", nil)
		p.Send("bye")
		if e := p.CloseError(); e == nil || e.Code != 4001 || e.Reason != "as you wish" || !p.Ended() {
			t.Errorf("closed with %v, ended: %v", e, p.Ended())
		}
		for _, code := range []websocket.StatusCode{0, 4002} {
			p = wstest.Open(t, srv, "/", nil)
			p.CloseWith(code, "")
			if e := p.CloseError(); e == nil || !p.Ended() {
				t.Errorf("%d: closed with %v, ended: %v", code, e, p.Ended())
			}
		}
		if p = wstest.Open(t, srv, "/", nil); p.CloseError() != nil || p.Closed() {
			t.Error("an open connection counts as closed")
		}
		p.Write([]byte("\x81\x05hello")) // a client must mask
		if e := p.CloseError(); e == nil || e.Code != websocket.StatusProtocolError {
			t.Errorf("closed with %v", e)
		}
	})
}

// A ping is answered by a pong that has its data.
func TestPong(t *testing.T) {
	var pongs []string
	accept := func(c *loop.Conn) loop.Handler {
		websocket.Of(c).OnPong = func(data []byte) { pongs = append(pongs, string(data)) }
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return websocket.Ping(c, msg) })
	}
	run(t, &loop.Server{Accept: accept}, func(t *testing.T, srv *looptest.Server) {
		p := wstest.Open(t, srv, "/", nil)
		p.Send("one", "two")
		srv.Sleep(time.Second) // after which the test may look at pongs
		if p.Pings() != 2 || !slices.Equal(pongs, []string{"one", "two"}) {
			t.Errorf("%d pings, answered by %q", p.Pings(), pongs)
		}
	})
}

// A peer answers pings while time passes, until it is mute.
func TestHeartbeat(t *testing.T) {
	accept := handler.Chain(handler.Shared(loop.HandlerFunc(echo)), handler.Heartbeat{
		Interval: time.Minute,
		Ping:     websocket.EmptyPing[*loop.Conn],
	})
	run(t, &loop.Server{Accept: accept},
		func(t *testing.T, srv *looptest.Server) {
			p := wstest.Open(t, srv, "/", nil)
			srv.Sleep(time.Hour)
			if p.Pings() < 50 || p.Closed() {
				t.Fatalf("after an hour: %d pings, closed with %v", p.Pings(), p.Reason())
			}
			p.Mute()
			srv.Sleep(10 * time.Minute)
			if !p.Closed() {
				t.Error("a mute peer is not evicted")
			}
		})
}

func TestOverTLS(t *testing.T) {
	cfg := &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("example.com")}}
	run(t, &loop.Server{TLS: cfg}, func(t *testing.T, srv *looptest.Server) {
		p := wstest.Upgrade(t, srv.OpenTLS(nil), "wss://example.com/", nil)
		p.Send("hello")
		wants(t, p, wstest.Message{Kind: websocket.Text, Data: "hello"})
	})
}

// A refusal is an answer as any other, with its body.
func TestRefused(t *testing.T) {
	ws := &websocket.Codec{Upgrade: func(r *http.Request, _ http.Header) error {
		return &websocket.HandshakeError{Status: http.StatusTeapot, Reason: "not " + r.Header.Get("X-Who")}
	}}
	run(t, &loop.Server{Codec: ws}, func(t *testing.T, srv *looptest.Server) {
		p := wstest.Upgrade(t, srv.Open(), "/", http.Header{"X-Who": {"you"}})
		r := p.Response()
		if r == nil || r.StatusCode != http.StatusTeapot {
			t.Fatalf("the answer: %v", r)
		}
		if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), "not you") {
			t.Errorf("the body: %q, %v", body, err)
		}
		p.Send("hello")
		wants(t, p)
	})
}
