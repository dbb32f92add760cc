package websocket_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A session is a client's connection on a real socket.
type session struct {
	conn   *loop.Conn
	msgs   chan string // with their kinds
	pongs  chan string
	closed chan error
}

func (s *session) OnMessage(c *loop.Conn, msg []byte) error {
	s.msgs <- websocket.Of(c).Kind().String() + " " + string(msg)
	return nil
}

func (s *session) OnClose(_ *loop.Conn, err error) { s.closed <- err }

// dialOwn connects to a server of ours, and waits until that has come to something.
func dialOwn(t *testing.T, l *loop.Loop, cfg *websocket.Client, tls *tls.Config) (*session, error) {
	t.Helper()
	s := &session{msgs: make(chan string, 100), pongs: make(chan string, 100), closed: make(chan error, 1)}
	opened := make(chan error, 2)
	loop.Dialer{Codec: cfg, TLS: tls}.Dial(l, cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
		if s.conn = c; err == nil {
			websocket.Of(c).OnPong = func(data []byte) { s.pongs <- string(data) }
		}
		opened <- err
		return s
	})
	return s, testkit.Receive(t, "the end of the dial", opened)
}

// do runs f on the loop of the connection.
func (s *session) do(t *testing.T, f func(c *loop.Conn) error) {
	t.Helper()
	done := make(chan error, 1)
	if err := s.conn.Ref().Tell(func(c *loop.Conn) { done <- f(c) }); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Receive(t, "the call on the loop", done); err != nil {
		t.Error(err)
	}
}

// The request of a client is what our server wants, and its answer what the client wants.
func TestClientAndServer(t *testing.T) {
	for _, compress := range []bool{false, true} {
		const most = 1 << 20
		srv := start(t, &websocket.Codec{
			Path: "/ws", Protocols: []string{"v2", "v1"}, Compress: compress, MaxMessage: most, CompressMin: 1,
		})
		s, err := dialOwn(t, srv.Loops()[1], &websocket.Client{
			URL: "ws://" + srv.LocalAddr().String() + "/ws?a=b", Protocols: []string{"v3", "v1"},
			Compress: true, MaxMessage: most, CompressMin: 1,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.do(t, func(c *loop.Conn) error {
			testkit.Want(t, "websocket.Of(c).Protocol()", websocket.Of(c).Protocol(), "v1")
			testkit.Want(t, "websocket.Of(c).Compressed()", websocket.Of(c).Compressed(), compress)
			testkit.Want(t, "websocket.Of(c).IsOpen()", websocket.Of(c).IsOpen(), true)
			return websocket.Ping(c, []byte("there?"))
		})
		if got := testkit.Receive(t, "a pong", s.pongs); got != "there?" {
			t.Errorf("pong %q", got)
		}
		for _, n := range []int{0, 1, 125, 126, 127, 65_535, 65_536, most} {
			msg := strings.Repeat("loopwheel! ", n/11+1)[:n]
			for kind, send := range map[string]func(websocket.LoopConn, []byte) error{"text ": websocket.SendText, "binary ": websocket.SendBinary} {
				s.do(t, func(c *loop.Conn) error { return send(c, []byte(msg)) })
				if got := testkit.Receive(t, "a message", s.msgs); got != kind+msg {
					t.Fatalf("%s of %d bytes came back as %.20q, %d bytes", kind, n, got, len(got))
				}
			}
		}
		s.do(t, func(c *loop.Conn) error { websocket.Close(c, 4003, "enough"); return nil })
		if e, ok := errors.AsType[*websocket.CloseError](testkit.Receive(t, "a call of OnClose", s.closed)); !ok || e.Code != 4003 || e.ByPeer {
			t.Errorf("the client closed with %v", e)
		}
		if e, ok := errors.AsType[*websocket.CloseError](srv.reason(t)); !ok || e.Code != 4003 || e.Reason != "enough" || !e.ByPeer {
			t.Errorf("the server closed with %v", e)
		}
	}
}

// How the server ends it is what OnClose of the client gets, and the other way round.
func TestClientAndServerClose(t *testing.T) {
	srv := start(t, &websocket.Codec{})
	cfg := &websocket.Client{URL: "ws://" + srv.LocalAddr().String(), Status: func(error) (websocket.StatusCode, string) { return 4100, "ours" }}
	dial := func() *session {
		s, err := dialOwn(t, srv.Loops()[0], cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for say, want := range map[string]websocket.CloseError{
		"please close":           {Code: 1000, ByPeer: true},
		"please close with 4001": {Code: 4001, Reason: "you asked for it", ByPeer: true},
		"please close and wait":  {Code: 4002, Reason: "waiting", ByPeer: true},
	} {
		s := dial()
		s.do(t, func(c *loop.Conn) error { return c.Send([]byte(say)) })
		err := testkit.Receive(t, "a call of OnClose", s.closed)
		if e, ok := errors.AsType[*websocket.CloseError](err); !ok || *e != want || !errors.Is(err, io.EOF) {
			t.Errorf("%q: the client closed with %v", say, err)
		}
		srv.reason(t)
	}
	for code, end := range map[websocket.StatusCode]func(c *loop.Conn){
		4100: (*loop.Conn).Close,
		4101: func(c *loop.Conn) { c.CloseWithError(&websocket.CloseError{Code: 4101}) },
	} {
		s := dial()
		s.do(t, func(c *loop.Conn) error { end(c); return nil })
		if e, ok := errors.AsType[*websocket.CloseError](srv.reason(t)); !ok || e.Code != code || !e.ByPeer {
			t.Errorf("the server closed with %v, want %d", e, code)
		}
	}
}

// wss goes over TLS, to whom the URL names, and over nothing else.
func TestClientTLS(t *testing.T) {
	pair := looptest.Certificate("localhost")
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: &websocket.Codec{},
		TLS:    &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}},
		Accept: func(*loop.Conn) loop.Handler { return echo{} },
	}
	serveUntilEnd(t, srv)
	_, port, _ := strings.Cut(srv.LocalAddr().String(), ":")
	cfg := &websocket.Client{URL: "wss://localhost:" + port}
	settings := cfg.TLS()
	if settings.RootCAs = trusted; settings.ServerName != "localhost" {
		t.Errorf("ServerName %q", settings.ServerName)
	}
	s, err := dialOwn(t, srv.Loops()[0], cfg, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.do(t, func(c *loop.Conn) error {
		if state, ok := c.TLS(); !ok || state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("TLS %t, protocol %q", ok, state.NegotiatedProtocol)
		}
		return c.Send([]byte("secret"))
	})
	if got := testkit.Receive(t, "a message", s.msgs); got != "text secret" {
		t.Errorf("got %q", got)
	}
	if _, err := dialOwn(t, srv.Loops()[0], cfg, cfg.TLS()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody trusts: %v", err)
	}
	if _, err := dialOwn(t, srv.Loops()[0], cfg, nil); !errors.Is(err, websocket.ErrNotSecure) {
		t.Errorf("without TLS: %v", err)
	}
}
