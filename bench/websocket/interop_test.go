package websocket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

const maxMessage = 16 << 20

// sizes are where lengths change their form, and up to the limit.
var sizes = []int{0, 1, 2, 125, 126, 127, 128, 1000, 65535, 65536, 65537, 1 << 20, maxMessage}

// echo sends back each message as what it was, and closes or pings if asked.
type echo struct{}

func (echo) OnMessage(c *loop.Conn, msg []byte) error {
	switch {
	case string(msg) == "please close with 4001":
		return &websocket.CloseError{Code: 4001, Reason: "you asked for it"}
	case string(msg) == "please close and wait":
		websocket.Close(c, 4002, "waiting")
		return nil
	case string(msg) == "please ping":
		return websocket.Ping(c, []byte("are you there?"))
	case websocket.Of(c).Kind() == websocket.Binary:
		return websocket.SendBinary(c, msg)
	}
	return websocket.SendText(c, msg)
}

func (echo) OnClose(*loop.Conn, error) {}

// serve runs the server of these tests; it returns its ws: URL and a channel of reasons and pongs.
func serve(t *testing.T, compress bool) (url string, pongs chan string) {
	t.Helper()
	pongs = make(chan string, 100)
	srv := &loop.Server{
		Addr:   "tcp://127.0.0.1:0",
		Codec:  &websocket.Codec{MaxMessage: maxMessage, Compress: compress},
		Limits: loop.Limits{MaxOutbound: 4 * maxMessage},
		Accept: func(c *loop.Conn) loop.Handler {
			websocket.Of(c).OnPong = func(data []byte) { pongs <- string(data) }
			return echo{}
		},
	}
	start(t, srv)
	return "ws://" + srv.LocalAddr().String() + "/", pongs
}

// start starts srv, which ends with the test.
func start(t testing.TB, srv *loop.Server) {
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

// payload returns n bytes: text, or random bytes, which do not compress.
func payload(n int, text bool) []byte {
	b := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = rnd.Read(b)
	if text {
		for i := range b {
			b[i] = "loopwheel abcdef"[b[i]&15]
		}
	}
	return b
}

// forEach runs f with compression off and on.
func forEach(t *testing.T, f func(t *testing.T, compress bool)) {
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprintf("compress=%v", compress), func(t *testing.T) { f(t, compress) })
	}
}

func TestGorilla(t *testing.T) {
	forEach(t, func(t *testing.T, compress bool) {
		url, pongs := serve(t, compress)
		d := gorilla.Dialer{EnableCompression: compress, WriteBufferSize: 1000} // larger messages go in fragments
		c, r, err := d.Dial(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if agreed := r.Header.Get("Sec-WebSocket-Extensions") != ""; agreed != compress {
			t.Errorf("extensions %q", r.Header.Get("Sec-WebSocket-Extensions"))
		}
		c.SetReadLimit(maxMessage)
		for _, n := range sizes {
			for _, kind := range []int{gorilla.TextMessage, gorilla.BinaryMessage} {
				want := payload(n, kind == gorilla.TextMessage)
				sent := sending(func() { gorillaSend(t, c, kind, want) })
				got, msg, err := c.ReadMessage()
				<-sent
				if err != nil || got != kind || !bytes.Equal(msg, want) {
					t.Fatalf("%d bytes of kind %d: %d bytes of kind %d, %v", n, kind, len(msg), got, err)
				}
			}
		}
		gorillaControl(t, c, pongs)
	})
}

// sending runs f beside the reader, since a large message has to be read while it is sent.
func sending(f func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func gorillaSend(t *testing.T, c *gorilla.Conn, kind int, msg []byte) {
	w, err := c.NextWriter(kind)
	if err == nil {
		_, err = w.Write(msg)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

func gorillaControl(t *testing.T, c *gorilla.Conn, pongs chan string) {
	got := make(chan string, 2)
	c.SetPongHandler(func(s string) error { got <- s; return nil })
	if err := errors.Join(
		c.WriteControl(gorilla.PingMessage, []byte("ping"), time.Now().Add(time.Minute)),
		c.WriteMessage(gorilla.TextMessage, []byte("please ping")),
		c.WriteMessage(gorilla.TextMessage, []byte("please close and wait")),
	); err != nil {
		t.Fatal(err)
	}
	_, _, err := c.ReadMessage()
	if e, ok := errors.AsType[*gorilla.CloseError](err); !ok || e.Code != 4002 || e.Text != "waiting" {
		t.Errorf("closed with %v", err)
	}
	if s := <-got; s != "ping" {
		t.Errorf("pong %q", s)
	}
	if s := <-pongs; s != "are you there?" {
		t.Errorf("the client's pong is %q", s)
	}
}

func TestCoder(t *testing.T) {
	forEach(t, func(t *testing.T, compress bool) {
		url, _ := serve(t, compress)
		mode := coder.CompressionDisabled
		if compress {
			mode = coder.CompressionNoContextTakeover
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := coderDial(t, ctx, url, mode)
		for _, n := range sizes {
			for _, kind := range []coder.MessageType{coder.MessageText, coder.MessageBinary} {
				for _, fragments := range []int{1, 7} {
					want := payload(n, kind == coder.MessageText)
					sent := sending(func() { coderSend(t, ctx, c, kind, want, fragments) })
					got, msg, err := c.Read(ctx)
					<-sent
					if err != nil || got != kind || !bytes.Equal(msg, want) {
						t.Fatalf("%d bytes of %v in %d: %d bytes of %v, %v", n, kind, fragments, len(msg), got, err)
					}
				}
			}
		}
		done := make(chan error)
		go func() { done <- c.Ping(ctx) }()
		_ = c.Write(ctx, coder.MessageText, []byte("x"))
		_, _, _ = c.Read(ctx)
		go func() { _, _, _ = c.Read(ctx) }() // pongs are read by readers
		if err := <-done; err != nil {
			t.Errorf("Ping: %v", err)
		}
		if err := c.Close(4005, "bye"); err != nil {
			t.Errorf("Close: %v", err)
		}
		c = coderDial(t, ctx, url, mode)
		_ = c.Write(ctx, coder.MessageText, []byte("please close with 4001"))
		if _, _, err := c.Read(ctx); coder.CloseStatus(err) != 4001 {
			t.Errorf("closed with %v", err)
		}
	})
}

func coderDial(t *testing.T, ctx context.Context, url string, mode coder.CompressionMode) *coder.Conn {
	c, r, err := coder.Dial(ctx, url, &coder.DialOptions{CompressionMode: mode})
	if err != nil {
		t.Fatal(err)
	}
	if agreed := r.Header.Get("Sec-WebSocket-Extensions") != ""; agreed != (mode != coder.CompressionDisabled) || r.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("%s, extensions %q", r.Status, r.Header.Get("Sec-WebSocket-Extensions"))
	}
	c.SetReadLimit(maxMessage + 1)
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func coderSend(t *testing.T, ctx context.Context, c *coder.Conn, kind coder.MessageType, msg []byte, fragments int) {
	w, err := c.Writer(ctx, kind)
	for i := 0; i < fragments && err == nil; i++ {
		_, err = w.Write(msg[len(msg)*i/fragments : len(msg)*(i+1)/fragments])
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestNode runs npm/client.mjs, with npm's ws as the client.
func TestNode(t *testing.T) {
	needNode(t)
	forEach(t, func(t *testing.T, compress bool) {
		url, _ := serve(t, compress)
		out, err := exec.CommandContext(t.Context(), "node", "npm/client.mjs", url, fmt.Sprint(compress)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	})
}
