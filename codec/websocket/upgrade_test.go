package websocket_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// listenFor runs a server of cfg and returns its address.
func listenFor(t *testing.T, cfg *websocket.Codec, secure *tls.Config) string {
	t.Helper()
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: cfg, TLS: secure,
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		}}
	serveUntilEnd(t, srv)
	return srv.LocalAddr().String()
}

// upgradeOn sends a handshake and returns the answer.
func upgradeOn(t *testing.T, c net.Conn, changes ...string) *http.Response {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, request("example.com", changes...)); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Upgrade sees who asks, adds to the answer, and chooses the subprotocol.
func TestUpgradeHook(t *testing.T) {
	type seen struct {
		host, port string
		err        error
		tls        *tls.ConnectionState
	}
	asked := make(chan seen, 1)
	cfg := &websocket.Codec{Protocols: []string{"v1"}, Upgrade: func(r *http.Request, answer http.Header) error {
		host, port, err := net.SplitHostPort(r.RemoteAddr)
		asked <- seen{host, port, err, r.TLS}
		answer.Add("Set-Cookie", "a=1")
		answer.Add("Set-Cookie", "b=2")
		answer.Set("X-Split", "one\r\nX-Two: two")
		answer.Set("Upgrade", "h2c")
		answer.Set("Content-Length", "5")
		if p := r.URL.Query().Get("protocol"); p != "" {
			answer.Set("Sec-WebSocket-Protocol", p)
		}
		if r.URL.Query().Get("user") == "nobody" {
			return errors.New("who are you?")
		}
		return nil
	}}
	cert := testkit.Certificate("127.0.0.1")
	addr := listenFor(t, cfg, nil)
	secure := listenFor(t, cfg, &tls.Config{Certificates: []tls.Certificate{cert}})
	dial := func(addr string, secure bool) net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if secure {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		return c
	}
	for name, tc := range map[string]struct {
		path     string
		status   int
		protocol string
	}{
		"plain":             {"/", http.StatusSwitchingProtocols, "v1"},
		"chooses":           {"/?protocol=v2", http.StatusSwitchingProtocols, "v2"},
		"chooses wrongly":   {"/?protocol=v3", http.StatusInternalServerError, ""},
		"refuses":           {"/?user=nobody", http.StatusForbidden, ""},
		"chooses something": {"/?protocol=v1", http.StatusSwitchingProtocols, "v1"},
	} {
		for _, isTLS := range []bool{false, true} {
			at := addr
			if isTLS {
				at = secure
			}
			c := dial(at, isTLS)
			r := upgradeOn(t, c, "GET "+tc.path+" HTTP/1.1", "Sec-WebSocket-Protocol: v0, v1, v2")
			got := <-asked
			host, port, _ := net.SplitHostPort(c.LocalAddr().String())
			if got.err != nil || got.host != host || got.port != port || (got.tls != nil) != isTLS ||
				got.tls != nil && !got.tls.HandshakeComplete {
				t.Errorf("%s: Upgrade saw %+v", name, got)
			}
			if r.StatusCode != tc.status || r.Header.Get("Sec-WebSocket-Protocol") != tc.protocol {
				t.Errorf("%s: %s, %v", name, r.Status, r.Header)
			}
			if tc.status == http.StatusSwitchingProtocols && (strings.Join(r.Header["Set-Cookie"], ";") != "a=1;b=2" ||
				r.Header.Get("X-Two") != "" || len(r.Header["Upgrade"]) != 1 || r.Header.Get("Content-Length") != "") {
				t.Errorf("%s: the header is %v", name, r.Header)
			}
		}
	}
}

// A client that begins with HTTP/2 is told in HTTP/2 that it is to use HTTP/1.1.
func TestHTTP2IsRefused(t *testing.T) {
	c, err := net.Dial("tcp", listenFor(t, &websocket.Codec{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	if first, err := f.ReadFrame(); err != nil || first.Header().Type != http2.FrameSettings {
		t.Fatalf("the first frame is %v, %v", first, err)
	}
	second, err := f.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	if g, ok := second.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeHTTP11Required || len(g.DebugData()) == 0 {
		t.Errorf("the second frame is %v", second)
	}
	if _, err := f.ReadFrame(); err != io.EOF {
		t.Errorf("after it came %v", err)
	}
}
