package websocket_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// answer returns a right answer to a request, with lines changed, as request has it: one that is no
// header replaces the status line.
func answer(to string, changes ...string) string {
	return edited([]string{
		"HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Accept: " + acceptOf(to),
	}, changes)
}

// acceptOf returns what Sec-WebSocket-Accept must be in the answer to a request.
func acceptOf(request string) string {
	_, key, _ := strings.Cut(request, "Sec-WebSocket-Key: ")
	key, _, _ = strings.Cut(key, "\r\n")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// secure is the peer of a connection that is encrypted.
var secure = codec.Peer{TLS: new(tls.ConnectionState)}

// A dialed is a client's connection without a loop.
type dialed struct {
	framing.Decoder
	request string
	replies bytes.Buffer
	got     []string
}

// ask begins a connection of cfg.
func ask(t testing.TB, cfg *websocket.Client) *dialed {
	t.Helper()
	d := new(dialed)
	d.Init(cfg, nil)
	wire, _, err := d.Codec().(codec.Opener).Open(nil, secure)
	if err != nil {
		t.Fatal(err)
	}
	d.request = string(wire)
	return d
}

// feed decodes data, up to an error.
func (d *dialed) feed(data string) (err error) {
	rest := []byte(data)
	for more := true; more; {
		var msg []byte
		rest, msg, more, err = d.Next(rest)
		d.replies.Write(d.Codec().(codec.Responder).AppendReply(nil))
		if err != nil {
			return err
		}
		if msg != nil {
			d.got = append(d.got, show(websocket.Of(d).Kind().String(), string(msg)))
		}
	}
	return nil
}

// openClient returns a client's connection whose handshake is done, and answered with changes, as
// if it had been dialed.
func openClient(t testing.TB, cfg *websocket.Client, changes ...string) *dialed {
	t.Helper()
	d := ask(t, cfg)
	if err := d.feed(answer(d.request, changes...)); err != nil {
		t.Fatal(err)
	}
	if err := d.Codec().(codec.Opener).Opened(); err != nil || !websocket.Of(d).IsOpen() {
		t.Fatal("not open", err)
	}
	return d
}

// frames shows the frames that a client has sent.
func frames(wire []byte) (shown []string) {
	c := client{in: bufio.NewReader(bytes.NewReader(wire)), masked: true}
	for {
		f := c.next()
		if f == "EOF" {
			return shown
		}
		shown = append(shown, f)
	}
}

// A stranger is a server by hand for clients on a real socket.
type stranger struct {
	net.Listener
	srv     *loop.Server // of the clients
	cfg     *websocket.Client
	reasons chan error
	opened  chan error // what open functions get
}

// listen starts a stranger, and clients of cfg that echo.
func listen(t testing.TB, cfg *websocket.Client) *stranger {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.URL = "ws://" + ln.Addr().String() + "/chat"
	s := &stranger{ln, dialOnly(t), cfg, make(chan error, 1000), make(chan error, 1000)}
	t.Cleanup(func() { ln.Close() })
	return s
}

// dialOnly runs loops that only dial, until the test ends.
func dialOnly(t testing.TB) *loop.Server {
	t.Helper()
	srv := &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxOutbound: 64 << 20}}
	serveUntilEnd(t, srv)
	return srv
}

// serveUntilEnd runs srv until the test ends.
func serveUntilEnd(t testing.TB, srv *loop.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// dial has a client connect, and reads its request.
func (s *stranger) dial(t testing.TB) (c *client, request string) {
	t.Helper()
	loop.Dialer{Codec: s.cfg}.Dial(s.srv.Loops()[0], s.cfg.Addr(), func(_ *loop.Conn, err error) loop.Handler {
		s.opened <- err
		return echo{s.reasons}
	})
	nc, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(testkit.Patience))
	c = &client{Conn: nc, in: bufio.NewReader(nc), masked: true}
	for !strings.HasSuffix(request, "\r\n\r\n") {
		line, err := c.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		request += line
	}
	if _, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request))); err != nil {
		t.Fatal(err)
	}
	return c, request
}

// open does the handshake.
func (s *stranger) open(t testing.TB, changes ...string) *client {
	t.Helper()
	c, request := s.dial(t)
	c.write(t, answer(request, changes...))
	if err := s.outcome(t); err != nil {
		t.Fatal(err)
	}
	return c
}

// outcome waits for what an open function has got.
func (s *stranger) outcome(t testing.TB) error {
	t.Helper()
	return testkit.Receive(t, "the end of the dial", s.opened)
}

// flipped returns f as the other side sends it: what was masked is bare.
func flipped(f frame) frame {
	f.bare = !f.bare
	return f
}

// bare returns a frame as servers send it.
func bare(op ws.OpCode, payload string) string {
	return string(frame{fin: true, op: op, payload: payload, bare: true}.wire())
}
