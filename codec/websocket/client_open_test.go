package websocket_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// dialOpen has a client of example.com connect, and returns the server's end once open has
// returned.
func (s scripted) dialOpen(t *testing.T, cfg *websocket.Client, open func(c *loop.Conn) loop.Handler) *looptest.Peer {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = "ws://example.com/chat"
	}
	loop.Dialer{Codec: cfg}.Dial(s.Loops()[0], cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			t.Error(err)
			return nil
		}
		return open(c)
	})
	p, request := s.next(t)
	p.Send(answer(request, "Set-Cookie: a=b") + bare(1, "first"))
	return p
}

// The open function has an open WebSocket, and the server's answer. OnOpen, if that is set there,
// comes next, and then the first message.
func TestClientInOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		var got []string
		p := s.dialOpen(t, &websocket.Client{}, func(c *loop.Conn) loop.Handler {
			w := websocket.Of(c)
			got = append(got, fmt.Sprint("open ", w.IsOpen(), " ", w.Response().Header["Set-Cookie"]))
			w.OnOpen = func(r *http.Request) error {
				got = append(got, fmt.Sprint("OnOpen ", r.URL.Path, " ", w.Response() == r.Response, " ", r.Response.StatusCode))
				return c.Send([]byte("from OnOpen"))
			}
			if err := errors.Join(c.Send([]byte("from open")), websocket.Ping(c, nil)); err != nil {
				t.Error(err)
			}
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				got = append(got, fmt.Sprint(string(msg), " ", w.Response()))
				return nil
			})
		})
		wants(t, got, "open true [a=b]", "OnOpen /chat true 101", "first <nil>")
		wants(t, frames([]byte(p.Received())), `text "from open"`, `ping ""`, `text "from OnOpen"`)
	})
}

// What OnOpen finds fault with closes the connection, with the code that it says, and that is no
// attempt that has failed: open has been called.
func TestClientOnOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		var closed error
		p := s.dialOpen(t, &websocket.Client{}, func(c *loop.Conn) loop.Handler {
			c.AfterClose(func(err error) { closed = err })
			websocket.Of(c).OnOpen = func(*http.Request) error { return &websocket.CloseError{Code: 4010} }
			return echo{}
		})
		wants(t, frames([]byte(p.Received())), `close 4010`)
		if e, ok := errors.AsType[*websocket.CloseError](closed); !ok || e.Code != 4010 || e.ByPeer {
			t.Errorf("closed with %v", closed)
		}
	})
}

// Nothing of the handshake is left over: who changes the codec in open has all that came after it,
// and no more. So has a pipe, which passes on the frames of a browser as they are.
func TestClientLeavesNothingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		var got []string
		s.dialOpen(t, &websocket.Client{}, func(c *loop.Conn) loop.Handler {
			c.SetCodec(codec.Raw{})
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error { got = append(got, string(msg)); return nil })
		})
		wants(t, got, bare(1, "first"))
	})
}

// A gateway: it shakes hands with both sides, and then passes on frames as they are.
func TestClientThenPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := &websocket.Client{URL: "ws://backend.example/chat"}
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &websocket.Codec{}, Accept: func(c *loop.Conn) loop.Handler {
			websocket.Of(c).OnOpen = func(*http.Request) error {
				c.PauseRead()
				loop.Dialer{Codec: back}.Dial(c.Loop(), back.Addr(), func(up *loop.Conn, err error) loop.Handler {
					if err != nil {
						c.CloseWithError(err)
						return nil
					}
					loop.Pipe(c, up, loop.PipeConfig{})
					c.ResumeRead()
					return echo{}
				})
				return nil
			}
			return echo{}
		}})
		s := scripted{srv, srv.Backend("tcp", "backend.example:80")}
		browser := srv.Open()
		browser.Send(request("x") + string(text("from the browser").wire()))
		backend, asked := s.next(t)
		browser.Received() // the answer to its handshake
		backend.Send(answer(asked)+bare(1, "at once"), bare(9, "ping"))
		wants(t, frames([]byte(backend.Received())), `text "from the browser"`)
		if got := browser.Received(); got != bare(1, "at once")+bare(9, "ping") {
			t.Errorf("the browser received %q", got)
		}
	})
}

// A question while the request is made, such as for a token, may send something: it goes out after
// the handshake.
func TestClientSendsInPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t)
		loop.Dialer{}.Dial(s.Loops()[0], "tcp://example.com:80", func(c *loop.Conn, err error) loop.Handler {
			c.SetCodec(&websocket.Client{URL: "ws://example.com", Prepare: func(*http.Request) error { return c.Send([]byte("early")) }})
			return echo{}
		})
		p, request := s.next(t)
		p.Send(answer(request))
		wants(t, frames([]byte(p.Received())), `text "early"`)
	})
}
