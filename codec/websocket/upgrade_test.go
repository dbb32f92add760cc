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
			if tc.status == http.StatusForbidden {
				body := make([]byte, r.ContentLength)
				if _, err := io.ReadFull(r.Body, body); err != nil || string(body) != "Forbidden\n" {
					t.Errorf("%s: the body is %q, %v, want no text of ours", name, body, err)
				}
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
