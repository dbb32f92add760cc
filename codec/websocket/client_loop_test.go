package websocket_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A scripted is a server by hand for clients in memory.
type scripted struct {
	*looptest.Server
	*looptest.Backend
}

func script(t *testing.T) scripted {
	srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: func(*loop.Conn) loop.Handler { return echo{} }})
	return scripted{srv, srv.Backend("tcp", "example.com:80")}
}

// next takes the next connection, and its request.
func (s scripted) next(t *testing.T) (p *looptest.Peer, request string) {
	t.Helper()
	if p = s.Accept(); p == nil {
		t.Fatal("nobody dials")
	}
	return p, p.Received()
}

// A server that does not answer, or not all of it, is not waited for.
func TestClientTimeouts(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout time.Duration // of the Client
		dialer  loop.Dialer
		after   time.Duration
		want    error
	}{
		"by the Client": {3 * time.Second, loop.Dialer{}, 3 * time.Second, websocket.ErrTimeout},
		"by the Dialer": {0, loop.Dialer{Timeout: 2 * time.Second}, 2 * time.Second, os.ErrDeadlineExceeded},
		"by default":    {0, loop.Dialer{Timeout: time.Minute}, websocket.DefaultHandshakeTimeout, websocket.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script(t)
				cfg := &websocket.Client{URL: "ws://example.com", HandshakeTimeout: tc.timeout}
				tc.dialer.Codec = cfg
				var got []error
				tc.dialer.Dial(s.Loops()[0], cfg.Addr(), func(_ *loop.Conn, err error) loop.Handler { got = append(got, err); return nil })
				p, request := s.next(t)
				p.Send(answer(request)[:50])
				if s.Sleep(tc.after - time.Millisecond); len(got) > 0 {
					t.Fatal("too early")
				}
				if s.Sleep(time.Second); len(got) != 1 || !errors.Is(got[0], tc.want) || !p.Closed() || p.Received() != "" {
					t.Errorf("open got %v, closed %t", got, p.Closed())
				}
			})
		})
	}
}

// A client that closes waits for the server, which waits for us in turn to end the connection. A
// server that has gone without a word is io.EOF.
func TestClientEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		cfg := &websocket.Client{URL: "ws://example.com"}
		dial := func(in func(c *loop.Conn)) (p *looptest.Peer, closed *error) {
			closed = new(error)
			loop.Dialer{Codec: cfg}.Dial(s.Loops()[0], cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
				in(c)
				c.AfterClose(func(err error) { *closed = cmpError(err) })
				return echo{}
			})
			p, request := s.next(t)
			p.Send(answer(request))
			return p, closed
		}
		later := func(f func(c *loop.Conn)) func(c *loop.Conn) {
			return func(c *loop.Conn) { c.AfterFunc(time.Second, func() { f(c) }) }
		}
		p, closed := dial(later(func(c *loop.Conn) { websocket.Close(c, 4000, "bye") }))
		s.Sleep(time.Second)
		wants(t, frames([]byte(p.Received())), `close 4000 "bye"`)
		if *closed != nil || p.Closed() {
			t.Errorf("did not wait: %v", *closed)
		}
		p.Send(bare(8, "\x0f\xa0"))
		if e, ok := errors.AsType[*websocket.CloseError](*closed); !ok || e.Code != 4000 || !p.Closed() {
			t.Errorf("closed with %v", *closed)
		}
		_, closed = dial(later(func(c *loop.Conn) { websocket.Close(c, 4000, "bye") }))
		if s.Sleep(2*time.Second + websocket.CloseWait); *closed == nil {
			t.Error("it waits for ever")
		}
		p, closed = dial(func(*loop.Conn) {})
		if p.Close(); *closed != io.EOF {
			t.Errorf("closed with %v", *closed)
		}
		p, closed = dial(func(c *loop.Conn) { websocket.Close(c, 4001, "at once") })
		wants(t, frames([]byte(p.Received())), `close 4001 "at once"`)
		if *closed != nil || p.Closed() {
			t.Errorf("did not wait: %v", *closed)
		}
		p.Send(bare(8, "\x0f\xa1"))
		if e, ok := errors.AsType[*websocket.CloseError](*closed); !ok || e.Code != 4001 || !p.Closed() {
			t.Errorf("closed with %v", *closed)
		}
	})
}

func cmpError(err error) error {
	if err == nil {
		return errors.New("nil")
	}
	return err
}

// A connection that runs becomes a WebSocket: here a proxy has made it one to the server.
func TestClientThroughProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		var got []string
		cfg := &websocket.Client{URL: "ws://far.example/chat"}
		connected := func(c *loop.Conn, msg []byte) error {
			got = append(got, string(msg))
			if len(got) > 1 {
				return nil
			}
			c.SetCodec(cfg)
			websocket.Of(c).OnOpen = func(r *http.Request) error {
				got = append(got, r.URL.Path+" "+r.Response.Status)
				return c.Send([]byte("opened"))
			}
			return c.Send([]byte("early"))
		}
		d := loop.Dialer{Codec: codec.Delimiter{Delim: "\r\n\r\n"}}
		d.Dial(s.Loops()[0], "tcp://example.com:80", func(c *loop.Conn, err error) loop.Handler {
			_ = c.Send([]byte("CONNECT far.example:80 HTTP/1.1\r\nHost: far.example:80"))
			return loop.HandlerFunc(connected)
		})
		p, request := s.next(t)
		if !strings.HasPrefix(request, "CONNECT ") {
			t.Fatalf("got %q", request)
		}
		p.Send("HTTP/1.1 200 OK\r\n\r\n")
		request = p.Received()
		if !strings.HasPrefix(request, "GET /chat HTTP/1.1\r\nHost: far.example\r\n") || !strings.HasSuffix(request, "\r\n\r\n") {
			t.Fatalf("got %q", request)
		}
		p.Send(answer(request)+bare(1, "wel"), bare(1, "come"))
		wants(t, got, "HTTP/1.1 200 OK", "/chat 101 Switching Protocols", "wel", "come")
		wants(t, frames([]byte(p.Received())), `text "early"`, `text "opened"`)
	})
}

// A bot that comes back: what it has to say waits for a WebSocket, and is not lost to a balancer
// that has nobody behind it.
func TestClientComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		var states, said []string
		attempts := 0
		cfg := &websocket.Client{URL: "ws://example.com/bot"}
		cfg.Prepare = func(r *http.Request) error {
			attempts++
			r.Header.Set("Authorization", fmt.Sprint("token ", attempts))
			return nil
		}
		var link *handler.Link
		s.Do(0, func(l *loop.Loop) {
			link = handler.NewLink(l, handler.LinkConfig{
				Dialer: loop.Dialer{Codec: cfg, TLS: cfg.TLS()}, Addr: cfg.Addr(), Backlog: 1000,
				Accept: func(c *loop.Conn) loop.Handler {
					_ = c.Send([]byte("hello"))
					return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error { said = append(said, string(msg)); return nil })
				},
				State: func(c *loop.Conn, err error) { states = append(states, fmt.Sprint(c != nil, " ", err)) },
			})
		})
		const long = 1000 // messages of it are more than a codec keeps by itself
		for i := range 200 {
			s.Do(0, func(*loop.Loop) {
				if err := link.Send(fmt.Appendf(nil, "%*d", long, i)); err != nil {
					t.Error(err)
				}
			})
		}
		for _, refusal := range []string{"502 Bad Gateway", "503 Service Unavailable"} {
			p, request := s.next(t)
			if !strings.Contains(request, fmt.Sprintf("Authorization: token %d\r\n", attempts)) {
				t.Errorf("request %q", request)
			}
			p.Send("HTTP/1.1 " + refusal + "\r\n\r\n")
			if p.Received() != "" || !p.Closed() {
				t.Error("something is said to who refuses")
			}
			s.Sleep(time.Second)
		}
		p, request := s.next(t)
		p.Send(answer(request), bare(1, "hi"), bare(8, "\x03\xf4"))
		got := frames([]byte(p.Received()))
		if len(got) != 202 || got[0] != `text "hello"` || got[200] != show("text", fmt.Sprintf("%*d", long, 199)) || got[201] != "close 1012" {
			t.Errorf("%d frames: %.100q", len(got), got)
		}
		s.Sleep(time.Second)
		p, request = s.next(t)
		p.Send(answer(request), bare(1, "again"))
		wants(t, frames([]byte(p.Received())), `text "hello"`)
		wants(t, said, "hi", "again")
		wants(t, states,
			"false dial tcp example.com:80: websocket: handshake refused: 502 Bad Gateway",
			"false dial tcp example.com:80: websocket: handshake refused: 503 Service Unavailable",
			"true <nil>", "false websocket: closed by the peer: 1012", "true <nil>")
		var st handler.LinkStats
		s.Do(0, func(*loop.Loop) { st = link.Stats(); link.Stop() })
		testkit.Want(t, "st.Dials", st.Dials, 4)
		testkit.Want(t, "st.Opened", st.Opened, 2)
		testkit.Want(t, "st.Dropped", st.Dropped, 0)
	})
}

// A refusal is no fault of the input, and says nothing in the log; a wrong answer is one.
func TestClientRefusalInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		cfg := &websocket.Client{URL: "ws://example.com"}
		for reply, reason := range map[string]string{
			"HTTP/1.1 403 Forbidden\r\n\r\n": "other", "HTTP/1.1 101 x\r\n\r\n": "input",
		} {
			before := s.Stats().ClosedBy[reason]
			loop.Dialer{Codec: cfg}.Dial(s.Loops()[0], cfg.Addr(), func(*loop.Conn, error) loop.Handler { return nil })
			p, _ := s.next(t)
			p.Send(reply)
			s.Sleep(time.Minute)
			if now := s.Stats().ClosedBy[reason]; now != before+1 {
				t.Errorf("%q: %d closed for %v, want 1", reply, now-before, reason)
			}
		}
	})
}

// A heartbeat of the client's side.
func TestClientHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		cfg := &websocket.Client{URL: "ws://example.com"}
		var closed error
		open := handler.Chain(func(c *loop.Conn) loop.Handler {
			c.AfterClose(func(err error) { closed = err })
			return echo{}
		}, handler.Heartbeat{Interval: time.Second, Missed: 2, Ping: websocket.EmptyPing[*loop.Conn]})
		loop.Dialer{Codec: cfg}.Dial(s.Loops()[0], cfg.Addr(), func(c *loop.Conn, err error) loop.Handler { return open(c) })
		p, request := s.next(t)
		p.Send(answer(request))
		for range 10 {
			s.Sleep(time.Second)
			wants(t, frames([]byte(p.Received())), `ping ""`)
			p.Send(bare(10, ""))
		}
		if s.Sleep(time.Minute); !errors.Is(closed, handler.ErrHeartbeat) {
			t.Errorf("closed with %v", closed)
		}
	})
}
