package realtest_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

const longestWS = 200_000

// wsEcho is a server's end, which sends back what it gets as what it was.
func wsEcho(*loop.Conn) loop.Handler {
	return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
		if websocket.Of(c).Kind() == websocket.Text {
			return websocket.SendText(c, msg)
		}
		return websocket.SendBinary(c, msg)
	})
}

// A wsClient sends messages of all lengths, a few at once, and wants each back; then it closes.
type wsClient struct {
	rnd  *rand.Rand
	left int // bursts
	want [][]byte
	end  func(err error)
}

func (w *wsClient) burst(c *loop.Conn) error {
	if w.left--; w.left < 0 {
		websocket.Close(c, 4000, "enough")
		return nil
	}
	for range 1 + w.rnd.IntN(5) {
		n := w.rnd.IntN(300)
		if w.rnd.IntN(10) == 0 {
			n = w.rnd.IntN(longestWS)
		}
		msg := bytes.Repeat([]byte{byte('a' + w.rnd.IntN(26))}, n)
		send := websocket.SendText
		if w.rnd.IntN(2) == 0 {
			send = websocket.SendBinary
			for range n / 3 { // some of it is not compressed to anything
				msg[w.rnd.IntN(n)] = byte(w.rnd.Uint32())
			}
		}
		if err := errors.Join(send(c, msg), websocket.Ping(c, nil)); err != nil {
			return err
		}
		w.want = append(w.want, msg)
	}
	return nil
}

func (w *wsClient) OnMessage(c *loop.Conn, msg []byte) error {
	if !bytes.Equal(msg, w.want[0]) {
		return fmt.Errorf("%d bytes came back, want %d others", len(msg), len(w.want[0]))
	}
	if w.want = w.want[1:]; len(w.want) > 0 {
		return nil
	}
	return w.burst(c)
}

func (w *wsClient) OnClose(_ *loop.Conn, err error) { w.end(err) }

// wsServer runs a server of WebSocket, and returns the URL of its one and the settings for clients.
func wsServer(t *testing.T, secured bool, cd *websocket.Codec, accept loop.Accept) (srv *loop.Server, url string, settings *tls.Config) {
	srv = &loop.Server{NumLoops: 2, Codec: cd, MaxOutbound: 16 << 20, Accept: accept}
	if secured || overTLS() {
		pair := looptest.Certificate("127.0.0.1")
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		settings = &tls.Config{RootCAs: x509.NewCertPool()}
		settings.RootCAs.AddCert(pair.Leaf)
		return srv, "wss://" + start(t, srv).String() + "/", settings
	}
	return srv, "ws://" + start(t, srv).String() + "/", nil
}

// Many clients of both loops, on whatever engine, over TLS or not, compressed or not: all that they
// send comes back, in order, and each ends as it said.
func TestWebSocketClients(t *testing.T) {
	const clients, bursts = 40, 20
	for _, secured := range []bool{false, true} {
		for _, compress := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %t, compressed %t", secured, compress), func(t *testing.T) {
				srv, url, settings := wsServer(t, secured, &websocket.Codec{Compress: compress, MaxMessage: longestWS}, wsEcho)
				cfg := &websocket.Client{URL: url, Compress: true, MaxMessage: longestWS}
				ends := make(chan error, clients)
				for i := range clients {
					rnd := rand.New(rand.NewPCG(testkit.Seed(t, 1), uint64(i)))
					loop.Dialer{Codec: cfg, TLS: settings}.Dial(srv.Loops()[i%2], cfg.Addr(), func(c *loop.Conn, err error) loop.Handler {
						if err == nil && websocket.Of(c).Compressed() != compress {
							err = errors.New("the other way to compress")
						}
						w := &wsClient{rnd: rnd, left: bursts, end: func(err error) { ends <- err }}
						if err == nil {
							err = w.burst(c)
						}
						if err != nil {
							ends <- err
							return nil
						}
						return w
					})
				}
				for range clients {
					if e, ok := errors.AsType[*websocket.CloseError](soon(t, ends)); !ok || e.Code != 4000 || e.ByPeer {
						t.Fatalf("a client ended with %v", e)
					}
				}
			})
		}
	}
}

func soon[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing comes")
	}
	return v
}

// Bots that are refused, or sent away, come back.
func TestWebSocketClientsComeBack(t *testing.T) {
	const bots, visits = 10, 5
	refused := make(map[string]bool)
	cd := &websocket.Codec{Upgrade: func(r *http.Request, _ http.Header) error { // each bot's first attempt; all is on one loop
		if name := r.URL.RawQuery; !refused[name] {
			refused[name] = true
			return &websocket.HandshakeError{Status: http.StatusServiceUnavailable, Reason: "later"}
		}
		return nil
	}}
	restarting := func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return &websocket.CloseError{Code: websocket.StatusRestart} })
	}
	srv := &loop.Server{NumLoops: 1, Codec: cd, Accept: restarting}
	needPlain(t, "what is tested is above it")
	addr := start(t, srv).String()
	ends := make(chan error, bots*(visits+1))
	for i := range bots {
		cfg := &websocket.Client{URL: fmt.Sprintf("ws://%s/?%d", addr, i)}
		seen := 0
		var link *handler.Link
		redial := handler.Redial{
			Dialer: loop.Dialer{Codec: cfg}, Addr: cfg.Addr(), Min: time.Millisecond, Max: 10 * time.Millisecond,
			Open: func(c *loop.Conn) loop.Handler {
				_ = c.Send([]byte("hello"))
				return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
			},
			State: func(c *loop.Conn, err error) {
				if c != nil {
					return
				}
				if ends <- err; seen == visits {
					link.Stop()
				}
				seen++
			},
		}
		_ = srv.Loops()[0].Post(func() { link = redial.Start(srv.Loops()[0]) })
	}
	first := 0
	for range bots * (visits + 1) {
		err := soon(t, ends)
		if e, ok := errors.AsType[*websocket.HandshakeError](err); ok && e.Status == http.StatusServiceUnavailable && strings.HasPrefix(string(e.Body), "later") {
			first++
		} else if e, ok := errors.AsType[*websocket.CloseError](err); !ok || e.Code != websocket.StatusRestart || !e.ByPeer {
			t.Fatal(err)
		}
	}
	if first != bots {
		t.Errorf("%d refusals, want %d", first, bots)
	}
}
