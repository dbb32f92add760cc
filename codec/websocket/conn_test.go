package websocket_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// greeter is a handler that knows nothing of WebSocket.
type greeter struct{ closed func(error) }

func (g *greeter) OnMessage(c *loop.Conn, msg []byte) error {
	return c.Send(append([]byte("you said "), msg...))
}
func (g *greeter) OnClose(_ *loop.Conn, err error) { g.closed(err) }

func acceptGreeter(c *loop.Conn) loop.Handler {
	_ = c.Send([]byte("welcome"))
	return &greeter{func(error) {}}
}

// received shows the frames that a peer in memory got, after the head of an HTTP answer if there is
// one.
func received(p *looptest.Peer) (head string, frames []string) {
	data := p.Received()
	if strings.HasPrefix(data, "HTTP/") {
		head, data, _ = strings.Cut(data, "\r\n\r\n")
	}
	c := client{in: bufio.NewReader(strings.NewReader(data))}
	for {
		f := c.next()
		if f == "EOF" {
			return head, frames
		}
		frames = append(frames, f)
	}
}

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// One handler serves lines on one port and WebSocket on another.
func TestOneHandlerForBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: codec.Lines{}, Accept: acceptGreeter,
			Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: &websocket.Codec{}}},
		})
		lines, socket := srv.OpenTo(0), srv.OpenTo(1)
		lines.Send("hi\n")
		if got := lines.Received(); got != "welcome\nyou said hi\n" {
			t.Errorf("lines: %q", got)
		}
		if got := socket.Received(); got != "" {
			t.Errorf("before the handshake: %q", got)
		}
		socket.Send(request("x") + string(text("hi").wire()))
		head, frames := received(socket)
		if !strings.HasPrefix(head, "HTTP/1.1 101 ") {
			t.Errorf("the answer begins with %q", head)
		}
		wants(t, frames, `text "welcome"`, `text "you said hi"`)
		srv.Shutdown()
		_, frames = received(socket)
		wants(t, frames, "close 1001")
	})
}

// OnOpen comes after the answer, and in front of the first message, however the bytes come.
func TestOnOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened int
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: &websocket.Codec{Protocols: []string{"v1"}},
			Accept: func(c *loop.Conn) loop.Handler {
				w := websocket.Of(c)
				w.OnOpen = func(r *http.Request) error {
					opened++
					if !w.IsOpen() {
						t.Error("not open in OnOpen")
					}
					if r.URL.Path == "/refused" {
						return &websocket.CloseError{Code: 4003, Reason: "refused"}
					}
					return c.Send([]byte(r.URL.Path + " " + r.Header.Get("Cookie") + " " + w.Protocol()))
				}
				return &greeter{func(error) {}}
			},
		})
		wire := request("x", "Cookie: a=b", "Sec-WebSocket-Protocol: v1") + string(text("1").wire()) + string(text("2").wire())
		for _, size := range []int{1, 10, 1000} {
			p := srv.Open()
			for rest := wire; rest != ""; {
				n := min(size, len(rest))
				p.Send(rest[:n])
				rest = rest[n:]
			}
			_, frames := received(p)
			wants(t, frames, `text "/chat a=b v1"`, `text "you said 1"`, `text "you said 2"`)
		}
		if opened != 3 {
			t.Errorf("opened %d times", opened)
		}
		p := srv.Open()
		p.Send(request("x", "GET /refused HTTP/1.1"), "never read")
		_, frames := received(p)
		wants(t, frames, `close 4003 "refused"`)
	})
}

// Without any call a handshake has ten seconds, or what the Codec says, however it comes.
func TestHandshakeTimeout(t *testing.T) {
	for _, cfg := range []*websocket.Codec{{}, {HandshakeTimeout: 3 * time.Second}} {
		d := cmp.Or(cfg.HandshakeTimeout, websocket.DefaultHandshakeTimeout)
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: cfg, Accept: acceptGreeter})
				silent, slow, good := srv.Open(), srv.Open(), srv.Open()
				good.Send(request("x"))
				for _, b := range []byte(request("x"))[:9] {
					slow.Send(string(b))
					testkit.Pass(d / 10)
				}
				testkit.Pass(d/10 - time.Millisecond)
				if silent.Ended() || slow.Ended() {
					t.Fatal("closed early")
				}
				testkit.Pass(10 * time.Millisecond)
				testkit.Want(t, "what the silent one received", silent.Received(), "")
				testkit.Want(t, "the slow one has a 408", strings.HasPrefix(slow.Received(), "HTTP/1.1 408 "), true)
				for name, p := range map[string]*looptest.Peer{"silent": silent, "slow": slow} {
					if !errors.Is(p.Reason(), websocket.ErrTimeout) {
						t.Errorf("%s: closed with %v, want %v", name, p.Reason(), websocket.ErrTimeout)
					}
				}
				if good.Ended() {
					t.Errorf("closed with %v, want it open", good.Reason())
				}
			})
		})
	}
}

// What is sent is of the kind that was asked for, and the next one of the usual kind.
func TestSendKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: codec.Lines{},
			Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: &websocket.Codec{}}},
			Accept: func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					long := websocket.Ping(c, make([]byte, 126))
					if is := websocket.Of(c) != nil; is != errors.Is(long, codec.ErrTooLong) || is == errors.Is(long, websocket.ErrNotOpen) {
						t.Errorf("a ping of 126 bytes: %v", long)
					}
					return errors.Join(websocket.SendBinary(c, msg), c.Send(msg), websocket.SendText(c, msg))
				})
			},
		})
		lines, socket := srv.OpenTo(0), srv.OpenTo(1)
		lines.Send("x\n")
		if got := lines.Received(); got != "x\nx\nx\n" {
			t.Errorf("lines: %q", got)
		}
		socket.Send(request("x"), string(text("x").wire()))
		_, frames := received(socket)
		wants(t, frames, `binary "x"`, `text "x"`, `text "x"`)
	})
}

// What a hook sends within SendBinary is of the usual kind.
func TestSendKindInHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: &websocket.Codec{},
			Accept: func(c *loop.Conn) loop.Handler {
				c.AfterFunc(time.Millisecond, func() { // not for the handshake
					c.OnHighWater(5, func() { _ = c.Send([]byte("hook")) })
				})
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return websocket.SendBinary(c, msg) })
			},
		})
		p := wstest.Open(t, srv, "/", nil)
		srv.Sleep(time.Second)
		p.Send("message")
		testkit.Want(t, "messages", fmt.Sprint(p.Messages()), fmt.Sprint([]wstest.Message{{Kind: websocket.Binary, Data: "message"}, {Kind: websocket.Text, Data: "hook"}}))
	})
}

// Close waits for the peer's answer, and not for ever.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: &websocket.Codec{},
			Accept: func(c *loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					websocket.Close(c, 4000, string(msg))
					websocket.Close(c, 4001, "again")
					if err := c.Send([]byte("late")); !errors.Is(err, websocket.ErrNotOpen) {
						t.Errorf("Send after Close: %v", err)
					}
					if err := websocket.Ping(c, nil); !errors.Is(err, websocket.ErrNotOpen) {
						t.Errorf("Ping after Close: %v", err)
					}
					return nil
				})
			},
		})
		polite, rude := srv.Open(), srv.Open()
		polite.Send(request("x"), string(text("bye").wire()))
		rude.Send(request("x"), string(text(strings.Repeat("ü", 100)).wire()))
		_, frames := received(polite)
		wants(t, frames, `close 4000 "bye"`)
		_, frames = received(rude)
		wants(t, frames, fmt.Sprintf("close 4000 %q", strings.Repeat("ü", 61)))
		if polite.Ended() || rude.Ended() {
			t.Fatal("did not wait")
		}
		polite.Send(string(closing(1000, "").wire()))
		testkit.Pass(websocket.CloseWait + time.Millisecond)
		for _, p := range []*looptest.Peer{polite, rude} {
			e, ok := errors.AsType[*websocket.CloseError](p.Reason())
			if !ok || e.Code != 4000 || e.ByPeer {
				t.Errorf("closed with %v", p.Reason())
			}
			if got := p.Received(); got != "" {
				t.Errorf("after the close frame came %q", got)
			}
		}
	})
}

func TestCloseErrorOfPeer(t *testing.T) {
	s := start(t, &websocket.Codec{})
	c := s.open(t)
	c.write(t, string(closing(4711, "bye").wire()))
	err := s.reason(t)
	e, ok := errors.AsType[*websocket.CloseError](err)
	if !ok || e.Code != 4711 || e.Reason != "bye" || !e.ByPeer || !errors.Is(err, io.EOF) || !errors.Is(err, codec.ErrEnd) {
		t.Errorf("OnClose got %v", err)
	}
	for wire, want := range map[string]error{
		string(frame{fin: true, op: 3}.wire()):                  codec.ErrMalformed,
		string(text("\xff").wire()):                             websocket.ErrInvalidUTF8,
		string(frame{fin: true, op: 2, length: 1 << 20}.wire()): codec.ErrTooLong,
		string(frame{fin: true, op: 1, bare: true}.wire()):      ws.ErrProtocolMaskRequired,
		string(text("please close with 4001").wire()):           nil,
	} {
		c := s.open(t)
		c.write(t, wire)
		err := s.reason(t)
		if e, ok := errors.AsType[*websocket.CloseError](err); !ok || e.ByPeer || errors.Is(err, io.EOF) || errors.Is(err, codec.ErrEnd) != (want == nil) || want != nil && !errors.Is(err, want) {
			t.Errorf("%x: OnClose got %v, want %v", wire, err, want)
		}
	}
}

// Status chooses the close code that the peer gets for our errors. Codes that must not be sent are
// not.
func TestStatus(t *testing.T) {
	errGo, errBad := errors.New("go"), errors.New("bad")
	cfg := &websocket.Codec{Status: func(err error) (websocket.StatusCode, string) {
		switch err {
		case errGo:
			return 4999, "go away"
		case errBad:
			return 1005, "never"
		}
		return websocket.StatusNormal, "\xff"
	}}
	for err, want := range map[error]string{
		errGo: `close 4999 "go away"`, errBad: "close 1011", nil: "close 1000",
		&websocket.CloseError{Code: 1006}: "close 1011",
	} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			c := opened(t, cfg)
			in := client{in: bufio.NewReader(bytes.NewReader(c.AppendFarewell(nil, err)))}
			if got := in.next(); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		})
	}
}
