package websocket_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// What goes out first (RFC 6455 section 4.1).
func TestClientRequest(t *testing.T) {
	cfg := &websocket.Client{
		URL:       "wss://example.com:8443/a%20b/ü?x=1&y=%20",
		Header:    http.Header{"Authorization": {"Bearer secret"}, "cookie": {"a=b"}, "User-Agent": {"bot/1"}},
		Protocols: []string{"v2", "v1"},
		Compress:  true,
	}
	first, second := ask(t, cfg).request, ask(t, cfg).request
	key := func(request string) string {
		_, key, _ := strings.Cut(request, "Sec-WebSocket-Key: ")
		return key[:24]
	}
	if key(first) == key(second) {
		t.Errorf("the same key twice, %s", key(first))
	}
	lines := strings.Split(strings.TrimSuffix(strings.Replace(first, key(first), "KEY", 1), "\r\n\r\n"), "\r\n")
	slices.Sort(lines[2:])
	wants(t, lines, "GET /a%20b/%C3%BC?x=1&y=%20 HTTP/1.1", "Host: example.com:8443", "Authorization: Bearer secret",
		"Connection: Upgrade",
		"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits",
		"Sec-WebSocket-Key: KEY", "Sec-WebSocket-Protocol: v2, v1", "Sec-WebSocket-Version: 13",
		"Upgrade: websocket", "User-Agent: bot/1", "cookie: a=b")
	for url, want := range map[string]string{
		"ws://example.com":       "GET / HTTP/1.1\r\nHost: example.com\r\n",
		"WS://example.com:":      "GET / HTTP/1.1\r\nHost: example.com\r\n",
		"ws://example.com:80?q":  "GET /?q HTTP/1.1\r\nHost: example.com:80\r\n",
		"ws://[::1]:8080/x":      "GET /x HTTP/1.1\r\nHost: [::1]:8080\r\n",
		"ws://[fe80::1%25eth0]/": "GET / HTTP/1.1\r\nHost: [fe80::1]\r\n",
	} {
		request := ask(t, &websocket.Client{URL: url}).request
		if !strings.HasPrefix(request, want) || strings.Contains(request, "Protocol") || strings.Contains(request, "Extensions") {
			t.Errorf("%s: %q", url, request)
		}
	}
}

// An answerCase changes a right answer (see answer), and is taken, or not.
type answerCase struct {
	section string // of RFC 6455, unless another RFC is named
	name    string
	changes []string
	wrong   string // what Error says, "" if nothing is wrong
}

func answerCases() []answerCase {
	const upgrade, connection, accept = "its Upgrade is", "its Connection is", "Sec-WebSocket-Accept does not match our key"
	return []answerCase{
		{"1.3", "the example", nil, ""},
		{"4.1", "another reason", []string{"HTTP/1.1 101 Web Socket Protocol Handshake"}, ""},
		{"4.1", "no reason", []string{"HTTP/1.1 101 "}, ""},
		{"4.1", "names and values in other cases", []string{"Upgrade:", "UPGRADE: WebSocket", "Connection:", "connection: upgrade"}, ""},
		{"4.1", "more tokens in Connection", []string{"Connection: keep-alive, Upgrade"}, ""},
		{"4.1", "several lines of Connection", []string{"Connection: keep-alive\r\nConnection: Upgrade"}, ""},
		{"4.1", "further headers", []string{"Server: x", "Set-Cookie: a=b", "X-Empty: "}, ""},
		{"4.1", "a protocol that was asked for", []string{"Sec-WebSocket-Protocol: v1"}, ""},
		{"RFC 9110 15.2", "others before it", []string{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 x"}, ""},
		{"4.1", "HTTP/1.0", []string{"HTTP/1.0 101 x"}, "it is HTTP/1.0"},
		{"4.1", "HTTP/2", []string{"HTTP/2 101 x"}, "this is not HTTP"},
		{"4.1", "no Upgrade", []string{"Upgrade:"}, upgrade},
		{"4.1", "another Upgrade", []string{"Upgrade: h2c"}, upgrade},
		{"4.1", "two Upgrades", []string{"Upgrade: websocket, h2c"}, upgrade},
		{"4.1", "two lines of Upgrade", []string{"Upgrade: websocket\r\nUpgrade: websocket"}, upgrade},
		{"4.1", "no Connection", []string{"Connection:"}, connection},
		{"4.1", "another Connection", []string{"Connection: no-upgrade"}, connection},
		{"4.1", "no Accept", []string{"Sec-WebSocket-Accept:"}, accept},
		{"4.1", "an empty Accept", []string{"Sec-WebSocket-Accept: "}, accept},
		{"4.1", "the Accept of the example", []string{"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, accept},
		{"11.3.3", "a second Accept", []string{"X: y\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, accept},
		{"4.1", "a protocol that was not asked for", []string{"Sec-WebSocket-Protocol: v3"}, "the subprotocol"},
		{"4.1", "a protocol in another case", []string{"Sec-WebSocket-Protocol: V1"}, "the subprotocol"},
		{"4.1", "two protocols", []string{"Sec-WebSocket-Protocol: v1, v2"}, "the subprotocol"},
		{"11.3.4", "two lines of protocols", []string{"Sec-WebSocket-Protocol: v1\r\nSec-WebSocket-Protocol: v1"}, "the subprotocol"},
		{"4.1", "an empty protocol", []string{"Sec-WebSocket-Protocol: "}, "the subprotocol"},
		{"4.1", "an extension that was not asked for", []string{"Sec-WebSocket-Extensions: permessage-deflate"}, "the extensions"},
		{"4.1", "an empty extension", []string{"Sec-WebSocket-Extensions: "}, "the extensions"},
		{"RFC 9112 5.1", "a space in a header's name", []string{"X: 1\r\nX B: 2"}, "bad header name"},
		{"RFC 9112 5", "a line that is no header", []string{"X: 1\r\nnonsense"}, "malformed"},
		{"RFC 9112 2.2", "a NUL in a header", []string{"X: \x00"}, "malformed"},
		{"RFC 9112 4", "a status that is no number", []string{"HTTP/1.1 x1"}, "malformed"},
		{"RFC 9112 4", "a status of two digits", []string{"HTTP/1.1 10 x"}, "malformed"},
		{"RFC 9112 4", "a negative status", []string{"HTTP/1.1 -99 x"}, "malformed"},
		{"RFC 9112 4", "a status of zeros", []string{"HTTP/1.1 000 x"}, "bad status 0"},
		{"RFC 9112 4", "a status of four digits", []string{"HTTP/1.1 1010 x"}, "malformed"},
		{"RFC 6585 5", "a header that is too long", []string{"X: " + strings.Repeat("x", websocket.DefaultMaxHandshake)}, "longer than 16384 bytes"},
		{"RFC 6585 5", "others before it without an end", []string{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 1000) + "HTTP/1.1 101 x"}, "longer than 16384 bytes"},
	}
}

func TestClientAnswer(t *testing.T) {
	for _, tc := range answerCases() {
		t.Run(tc.section+" "+tc.name, func(t *testing.T) {
			for _, size := range []int{1, 100, 1 << 20} {
				d := ask(t, &websocket.Client{URL: "ws://x", Protocols: []string{"v2", "v1"}})
				var err error
				for piece := range slices.Chunk([]byte(answer(d.request, tc.changes...)+bare(1, "at once")), size) {
					if err = d.feed(string(piece)); err != nil {
						break
					}
				}
				tc.check(t, d, err)
			}
		})
	}
}

func (tc *answerCase) check(t *testing.T, d *dialed, err error) {
	if tc.wrong == "" {
		if err != nil {
			t.Fatal(err)
		}
		wants(t, d.got, `text "at once"`)
		return
	}
	kind := codec.ErrMalformed
	if strings.Contains(tc.wrong, "longer") {
		kind = codec.ErrTooLong
	}
	e, ok := errors.AsType[*websocket.HandshakeError](err)
	if !ok || !errors.Is(err, kind) || errors.Is(err, codec.ErrEnd) || !strings.Contains(err.Error(), tc.wrong) || len(d.got) > 0 {
		t.Errorf("error %v, messages %q", err, d.got)
	}
	if refused := e != nil && e.Status == 101; refused != (e != nil && e.Header != nil) {
		t.Errorf("status %d, header %v", e.Status, e.Header)
	}
	if _, err := d.Codec().AppendFrame(nil, []byte("x")); !errors.Is(err, websocket.ErrNotOpen) {
		t.Errorf("AppendFrame afterwards: %v", err)
	}
	if left := d.Codec().(codec.Farewell).AppendFarewell(nil, err); len(left) > 0 {
		t.Errorf("the last words are %q", left)
	}
}

// What does not begin like an answer is not waited for, nor is one without an end.
func TestClientAnswerWithoutEnd(t *testing.T) {
	for wire, want := range map[string]string{
		"\x15\x03\x01": "this is not HTTP", "SSH-2.0-x": "this is not HTTP", "h": "this is not HTTP", "HTTP/3": "this is not HTTP",
		"HTTP/1.1 101 " + strings.Repeat("x", 2000):               "longer than 1000 bytes",
		"HTTP/1.1 101 x\r\n" + strings.Repeat("X: y\r\n", 400):    "longer than 1000 bytes",
		"HTTP/1.1 200 x\r\n" + strings.Repeat("X: y\r\n", 400):    "longer than 1000 bytes",
		strings.Repeat("HTTP/1.1 102 x\r\n\r\n", 56) + "HTTP/1.1": "longer than 1000 bytes",
		"H": "", "HTTP/1.1 101 x\r\nUpgrade": "",
	} {
		t.Run(fmt.Sprintf("%.40q", wire), func(t *testing.T) {
			d := ask(t, &websocket.Client{URL: "ws://x", MaxHandshake: 1000})
			err := d.feed(wire)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%.30q: %v, want %q", wire, err, want)
			}
		})
	}
	d := new(dialed)
	d.Init(&websocket.Client{URL: "ws://x"}, nil)
	if err := d.feed("HTTP/1.1 101 x\r\n"); err == nil || !strings.Contains(err.Error(), "greeting") {
		t.Errorf("an answer to nothing: %v", err)
	}
}

// A server that does not want the connection says so in HTTP.
func TestClientRefused(t *testing.T) {
	long := strings.Repeat("sorry ", 1000)
	for name, tc := range map[string]struct {
		answer string
		want   websocket.HandshakeError
		header string // a field of it
	}{
		"a login":          {"401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 5\r\n\r\nsorry", websocket.HandshakeError{Status: 401, Reason: "Unauthorized", Body: []byte("sorry")}, "Www-Authenticate"},
		"a redirect":       {"302 Found\r\nLocation: https://elsewhere\r\n\r\n", websocket.HandshakeError{Status: 302, Reason: "Found"}, "Location"},
		"chunks":           {"403 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsor\r\n2\r\nry\r\n0\r\n\r\n", websocket.HandshakeError{Status: 403, Reason: "No", Body: []byte("sorry")}, ""},
		"half a body":      {"503 Busy\r\nContent-Length: 1000\r\nRetry-After: 7\r\n\r\nsorry", websocket.HandshakeError{Status: 503, Reason: "Busy", Body: []byte("sorry")}, "Retry-After"},
		"a body until EOF": {"500 Oh\r\n\r\nsorry", websocket.HandshakeError{Status: 500, Reason: "Oh", Body: []byte("sorry")}, ""},
		"a long body":      {"500 Oh\r\n\r\n" + long, websocket.HandshakeError{Status: 500, Reason: "Oh", Body: []byte(long[:1024])}, ""},
		"a page":           {"200 OK\r\nContent-Length: 2\r\n\r\nhi", websocket.HandshakeError{Status: 200, Reason: "OK", Body: []byte("hi")}, ""},
		"no reason":        {"599 \r\n\r\n", websocket.HandshakeError{Status: 599}, ""},
		"a nasty reason":   {"400 \x1b[2J\xff" + long + "\r\n\r\n", websocket.HandshakeError{Status: 400, Reason: ("?[2J\ufffd" + long)[:123]}, ""},
		"after another":    {"100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n", websocket.HandshakeError{Status: 404, Reason: "Not Found"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, proto := range []string{"HTTP/1.1 ", "HTTP/1.0 "} {
				if name == "chunks" && proto == "HTTP/1.0 " {
					continue // which has none
				}
				err := ask(t, &websocket.Client{URL: "ws://x"}).feed(proto + tc.answer)
				e, ok := errors.AsType[*websocket.HandshakeError](err)
				if !ok || !errors.Is(err, codec.ErrEnd) || errors.Is(err, codec.ErrMalformed) || errors.Is(err, io.EOF) {
					t.Fatalf("%v", err)
				}
				if e.Status != tc.want.Status || e.Reason != tc.want.Reason || string(e.Body) != string(tc.want.Body) || e.Header == nil {
					t.Errorf("got %d %q, a body of %.20q, want %+v", e.Status, e.Reason, e.Body, tc.want)
				}
				if tc.header != "" && e.Header.Get(tc.header) == "" {
					t.Errorf("no %s in %v", tc.header, e.Header)
				}
			}
		})
	}
}

// permessage-deflate, as servers may agree to it (RFC 7692 section 7.1).
func TestClientNegotiation(t *testing.T) {
	const agreed = "permessage-deflate; server_no_context_takeover"
	for answered, ok := range map[string]bool{
		agreed: true,
		"permessage-deflate;server_no_context_takeover;client_no_context_takeover": true,
		agreed + "; client_max_window_bits=8":                                      true,
		agreed + "; client_max_window_bits=15; server_max_window_bits=9":           true,
		agreed + `; client_max_window_bits="10"`:                                   true,
		"permessage-deflate":                                                       false, // we could not read it
		"permessage-deflate; client_no_context_takeover":                           false,
		agreed + "; client_max_window_bits":                                        false,
		agreed + "; client_max_window_bits=7":                                      false,
		agreed + "; client_max_window_bits=08":                                     false,
		agreed + "; client_max_window_bits=16":                                     false,
		agreed + "; server_max_window_bits=7":                                      false,
		agreed + "; server_max_window_bits":                                        false,
		agreed + "; server_no_context_takeover":                                    false,
		agreed + "; x=1":                                                           false,
		agreed + ", " + agreed:                                                     false,
		agreed + "\r\nSec-WebSocket-Extensions: " + agreed:                         false,
		"x-webkit-deflate-frame":                                                   false,
		agreed + ", x":                                                             false,
		"permessage-deflate; server_no_context_takeover=1":                         false,
		";": false, ",": false,
	} {
		t.Run(answered, func(t *testing.T) {
			d := ask(t, &websocket.Client{URL: "ws://x", Compress: true})
			err := d.feed(answer(d.request, "Sec-WebSocket-Extensions: "+answered))
			if (err == nil) != ok || ok && !websocket.Of(d).Compressed() || !ok && !strings.Contains(err.Error(), "the extensions") {
				t.Errorf("%q: %v", answered, err)
			}
		})
	}
	if websocket.Of(openClient(t, &websocket.Client{URL: "ws://x", Compress: true})).Compressed() {
		t.Error("compressed, though the server does not want it")
	}
}

// Each connection may have a request of its own.
func TestClientPrepare(t *testing.T) {
	errNone := errors.New("no token")
	n := 0
	cfg := &websocket.Client{URL: "ws://x/p", Header: http.Header{"A": {"b"}}}
	cfg.Prepare = func(r *http.Request) error {
		switch n++; n {
		case 1, 2:
			r.Header["A"][0] += "c"
			r.URL.RawQuery += "n"
			r.Host = "other"
		case 3:
			return errNone
		case 4:
			r.Header.Set("Sec-WebSocket-Key", "mine")
		case 5:
			r.Header["X"] = []string{"a\r\nB: c"}
		case 6:
			r.URL.RawQuery = "a HTTP/1.1\r\nX: y"
		}
		return nil
	}
	for range 2 {
		if r := ask(t, cfg).request; !strings.HasPrefix(r, "GET /p?n HTTP/1.1\r\nHost: other\r\n") || !strings.Contains(r, "\r\nA: bc\r\n") {
			t.Errorf("request %q", r)
		}
	}
	for i, want := range []error{errNone, codec.ErrConfig, codec.ErrConfig, codec.ErrConfig} {
		c := cfg.New()
		if wire, _, err := c.(codec.Opener).Open([]byte("before"), secure); !errors.Is(err, want) || string(wire) != "before" {
			t.Errorf("%d: %q, %v, want %v", i, wire, err, want)
		}
	}
}

// A wss URL is a promise that nobody listens.
func TestClientNotSecure(t *testing.T) {
	for url, want := range map[string]error{"wss://x": websocket.ErrNotSecure, "ws://x": nil, "http://x": codec.ErrConfig} {
		t.Run(url, func(t *testing.T) {
			c := (&websocket.Client{URL: url, Header: http.Header{"Authorization": {"secret"}}}).New()
			if wire, _, err := c.(codec.Opener).Open(nil, codec.Peer{}); !errors.Is(err, want) || (len(wire) > 0) != (want == nil) {
				t.Errorf("%s: %q, %v", url, wire, err)
			}
		})
	}
	cfg := &websocket.Client{URL: "ws://x", Prepare: func(r *http.Request) error { r.URL.Scheme = "wss"; return nil }}
	for _, peer := range []codec.Peer{{}, secure} {
		encrypted := peer.TLS != nil
		if wire, _, err := cfg.New().(codec.Opener).Open(nil, peer); errors.Is(err, websocket.ErrNotSecure) == encrypted || (len(wire) > 0) != encrypted {
			t.Errorf("encrypted %t: %q, %v", encrypted, wire, err)
		}
	}
}

// Messages sent before the handshake is done go out after it. More than 64 KiB are refused.
func TestClientSendsEarly(t *testing.T) {
	d := ask(t, &websocket.Client{URL: "ws://x"})
	c := d.Codec()
	for _, s := range []string{"one", "two"} {
		if wire, err := c.AppendFrame(nil, []byte(s)); err != nil || len(wire) > 0 {
			t.Errorf("%q, %v", wire, err)
		}
	}
	if _, err := c.AppendFrame(nil, make([]byte, 64<<10)); !errors.Is(err, codec.ErrTooLong) {
		t.Errorf("64 KiB more: %v", err)
	}
	testkit.WantErr(t, "Opening", c.(codec.Opener).Opening(), websocket.ErrTimeout)
	testkit.Want(t, "websocket.Of(d).IsOpen()", websocket.Of(d).IsOpen(), false)
	websocket.Of(d).OnOpen = func(*http.Request) error { d.got = append(d.got, "open"); return nil }
	if err := d.feed(answer(d.request) + bare(ws.OpText, "hello")); err != nil {
		t.Fatal(err)
	}
	wants(t, frames(d.replies.Bytes()), `text "one"`, `text "two"`)
	wants(t, d.got, "open", `text "hello"`)
	if err := c.(codec.Opener).Opening(); err != nil {
		t.Error(err)
	}
}
