package websocket_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A handshakeCase changes a right handshake (see request) and wants this status.
type handshakeCase struct {
	section string // of RFC 6455, unless another RFC is named
	name    string
	changes []string
	status  int
}

func handshakeCases() []handshakeCase {
	const switching, bad = http.StatusSwitchingProtocols, http.StatusBadRequest
	long := strings.Repeat("x", websocket.DefaultMaxHandshake)
	return []handshakeCase{
		{"1.3", "the example", nil, switching},
		{"4.2.1", "header names in capitals", []string{"upgrade:", "UPGRADE: websocket"}, switching},
		{"4.2.1", "header values in other cases", []string{"Upgrade: WebSocket", "Connection: upgrade"}, switching},
		{"4.2.1", "more tokens in Connection", []string{"Connection: keep-alive, Upgrade"}, switching},
		{"4.2.1", "several lines of Connection", []string{"Connection: keep-alive\r\nConnection: Upgrade"}, switching},
		{"4.2.1", "tokens over several lines of Connection", []string{"Connection: a, b\r\nConnection: close ,\tUPGRADE,"}, switching},
		{"4.2.1", "another protocol offered, too", []string{"Upgrade: websocket, foo"}, switching},
		{"4.2.1", "another protocol offered before, in another line", []string{"Upgrade: h2c/1\r\nUpgrade: WebSocket"}, switching},
		{"4.2.1", "another protocol that begins like ours", []string{"Upgrade: websockets"}, bad},
		{"4.2.1", "a token that only contains Upgrade", []string{"Connection: no-upgrade"}, bad},
		{"4.2.1", "further headers", []string{"User-Agent: test", "Cookie: a=b; c=d", "X-Empty: "}, switching},
		{"4.2.1", "a query", []string{"GET /chat?user=1&x=%20 HTTP/1.1"}, switching},
		{"4.2.1", "HTTP/1.0", []string{"GET /chat HTTP/1.0"}, http.StatusHTTPVersionNotSupported},
		{"4.2.1", "HTTP/2.0", []string{"GET /chat HTTP/2.0"}, http.StatusHTTPVersionNotSupported},
		{"4.2.1", "POST", []string{"POST /chat HTTP/1.1"}, http.StatusMethodNotAllowed},
		{"4.2.1", "HEAD", []string{"HEAD /chat HTTP/1.1"}, http.StatusMethodNotAllowed},
		{"4.2.1", "CONNECT", []string{"CONNECT /chat HTTP/1.1"}, http.StatusMethodNotAllowed},
		{"4.2.1", "no host", []string{"Host:"}, bad},
		{"4.2.1", "no Upgrade", []string{"Upgrade:"}, bad},
		{"4.2.1", "an Upgrade to something else", []string{"Upgrade: h2c"}, bad},
		{"4.2.1", "nothing but the version", []string{"Upgrade:", "Connection:", "Sec-WebSocket-Key:"}, bad},
		{"4.2.1", "no Connection", []string{"Connection:"}, bad},
		{"4.2.1", "a Connection without Upgrade", []string{"Connection: keep-alive"}, bad},
		{"4.2.1", "no key", []string{"Sec-WebSocket-Key:"}, bad},
		{"4.2.1", "an empty key", []string{"Sec-WebSocket-Key: "}, bad},
		{"4.2.1", "a key of 15 bytes", []string{"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0"}, bad},
		{"4.2.1", "a key of 17 bytes", []string{"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NTY="}, bad},
		{"4.2.1", "a key that is not base64", []string{"Sec-WebSocket-Key: ????????????????????????"}, bad},
		{"4.2.1", "a key of 24 characters that is not 16 bytes", []string{"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAAA"}, bad},
		{"11.3.1", "two keys", []string{"X-A: 1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}, bad},
		{"4.2.1", "no version", []string{"Sec-WebSocket-Version:"}, bad},
		{"4.2.2", "version 8", []string{"Sec-WebSocket-Version: 8"}, http.StatusUpgradeRequired},
		{"4.2.2", "version 14", []string{"Sec-WebSocket-Version: 14"}, http.StatusUpgradeRequired},
		{"4.2.2", "version 013", []string{"Sec-WebSocket-Version: 013"}, http.StatusUpgradeRequired},
		{"11.3.5", "two versions", []string{"X-A: 1\r\nSec-WebSocket-Version: 8"}, bad},
		{"4.2.2", "another path", []string{"GET /other HTTP/1.1"}, http.StatusNotFound},
		{"4.2.2", "the path with a slash after it", []string{"GET /chat/ HTTP/1.1"}, http.StatusNotFound},
		{"10.2", "the same origin", []string{"Host: example.com", "Origin: https://example.com"}, switching},
		{"10.2", "the same origin in capitals", []string{"Host: example.com", "Origin: HTTPS://EXAMPLE.COM"}, switching},
		{"10.2", "an origin that is allowed", []string{"Origin: https://friend.example"}, switching},
		{"10.2", "another origin", []string{"Origin: https://evil.example"}, http.StatusForbidden},
		{"10.2", "a proxy that names the port", []string{"Host: example.com:443", "Origin: https://example.com"}, switching},
		{"10.2", "an IPv6 host with the port", []string{"Host: [2001:db8::1]:80", "Origin: http://[2001:db8::1]"}, switching},
		{"10.2", "the port of another scheme", []string{"Host: example.com:443", "Origin: http://example.com"}, http.StatusForbidden},
		{"10.2", "another port", []string{"Host: example.com:8080", "Origin: https://example.com"}, http.StatusForbidden},
		{"10.2", "an origin that begins like an allowed one", []string{"Origin: https://friend.example.evil"}, http.StatusForbidden},
		{"10.2", "the origin null", []string{"Origin: null"}, http.StatusForbidden},
		{"10.2", "an empty origin", []string{"Host: example.com", "Origin: "}, http.StatusForbidden},
		{"10.2", "two origins", []string{"Origin: https://friend.example\r\nOrigin: https://evil.example"}, http.StatusForbidden},
		{"4.2.2", "a user that Upgrade refuses", []string{"GET /chat?user=nobody HTTP/1.1"}, http.StatusForbidden},
		{"4.2.2", "a user that Upgrade refuses with a status", []string{"GET /chat?user=expired HTTP/1.1"}, http.StatusUnauthorized},
		{"RFC 9110 15.5.14", "a body", []string{"Content-Length: 5"}, bad},
		{"RFC 9112 6.1", "a chunked body", []string{"Transfer-Encoding: chunked"}, bad},
		{"RFC 9112 6.3", "two lengths", []string{"Content-Length: 5\r\nContent-Length: 6"}, bad},
		{"RFC 6585 5", "a header that is too long", []string{"X-Long: " + long}, http.StatusRequestHeaderFieldsTooLarge},
		{"RFC 6585 5", "too many headers", []string{"X: " + strings.Repeat("1\r\nX: ", websocket.DefaultMaxHandshake/4)}, http.StatusRequestHeaderFieldsTooLarge},
		{"RFC 6585 5", "a path that is too long", []string{"GET /" + long + " HTTP/1.1"}, http.StatusRequestHeaderFieldsTooLarge},
		{"RFC 9112 3", "no HTTP version", []string{"GET /chat"}, bad},
		{"RFC 9112 3", "spaces in the path", []string{"GET /chat and more HTTP/1.1"}, bad},
		{"RFC 9112 5.1", "a space in a header's name", []string{"X-A: 1\r\nX B: 2"}, bad},
		{"RFC 9112 5", "a line that is no header", []string{"X-A: 1\r\nnonsense"}, bad},
		{"RFC 9112 2.2", "a head that ends in LF LF", []string{"X-A: 1\n\nGET /chat HTTP/1.1\r\nX-B: 2"}, bad},
		{"RFC 9112 2.2", "a head that ends in CR LF LF", []string{"X-A: 1\r\n\nX-B: 2"}, bad},
		{"RFC 9112 2.2", "a NUL in a header", []string{"X-A: \x00"}, bad},
	}
}

func TestHandshake(t *testing.T) {
	s := start(t, &websocket.Codec{
		Path:    "/chat",
		Origins: []string{"https://friend.example"},
		Upgrade: func(r *http.Request, _ http.Header) error {
			switch r.URL.Query().Get("user") {
			case "nobody":
				return errors.New("who are you?")
			case "expired":
				return &websocket.HandshakeError{Status: http.StatusUnauthorized, Reason: "log in again"}
			}
			return nil
		},
	})
	for _, tc := range handshakeCases() {
		t.Run(tc.section+" "+tc.name, func(t *testing.T) {
			t.Parallel()
			c := s.dial(t)
			wire := request(s.LocalAddr().String(), tc.changes...)
			if tc.status == http.StatusSwitchingProtocols {
				wire += string(text("at once").wire())
			}
			go func() { _, _ = io.WriteString(c.Conn, wire) }()
			r := c.responseTo(t, wire)
			if r.StatusCode != tc.status {
				t.Fatalf("status %s, want %d", r.Status, tc.status)
			}
			if tc.status == http.StatusSwitchingProtocols {
				tc.accepted(t, c, r)
				return
			}
			tc.refused(t, r)
			if got := c.next(); got != "EOF" {
				t.Errorf("after the answer came %s, want EOF", got)
			}
		})
	}
}

// refused checks that an answer says why, that the connection closes, and what a client can do
// better.
func (tc *handshakeCase) refused(t *testing.T, r *http.Response) {
	body, err := io.ReadAll(r.Body)
	if head := r.Request.Method == http.MethodHead; err != nil || (len(body) == 0) != head {
		t.Errorf("the answer's body is %q, %v: want a reason", body, err)
	}
	if !r.Close {
		t.Error("no Connection: close")
	}
	want := make(map[string]string)
	switch tc.status {
	case http.StatusUpgradeRequired:
		want["Upgrade"], want["Sec-Websocket-Version"] = "websocket", "13"
	case http.StatusMethodNotAllowed:
		want["Allow"] = "GET"
	}
	for name, value := range want {
		if got := strings.Join(r.Header[name], "|"); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

func (tc *handshakeCase) accepted(t *testing.T, c *client, r *http.Response) {
	if got := r.Header.Get("Sec-WebSocket-Accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Errorf("Sec-WebSocket-Accept %q", got)
	}
	testkit.Want(t, `r.Header.Get("Sec-WebSocket-Protocol")`, r.Header.Get("Sec-WebSocket-Protocol"), "")
	testkit.Want(t, `r.Header.Get("Sec-WebSocket-Extensions")`, r.Header.Get("Sec-WebSocket-Extensions"), "")
	if got := c.next(); got != `text "at once"` {
		t.Errorf("got %s", got)
	}
}

// RFC 9110 section 7.8: who sends Upgrade names it in Connection. (http.ReadResponse hides that
// header.)
func TestUpgradeRequired(t *testing.T) {
	s := start(t, &websocket.Codec{})
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", request("x", "Sec-WebSocket-Version: 8")} {
		c := s.dial(t)
		c.write(t, request)
		answer, err := io.ReadAll(c.in)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"HTTP/1.1 426 Upgrade Required", "Connection: Upgrade, close", "Upgrade: websocket"} {
			if strings.Count(string(answer), line+"\r\n") != 1 {
				t.Errorf("%q is not once in %q", line, answer)
			}
		}
	}
}

// The limit of a request holds however it comes.
func TestHandshakeLimit(t *testing.T) {
	long := request("x", "X-Long: "+strings.Repeat("x", 1000))
	for _, size := range []int{1, 100, len(long)} {
		for limit, want := range map[int]int{len(long): http.StatusSwitchingProtocols, len(long) - 1: http.StatusRequestHeaderFieldsTooLarge} {
			var d framing.Decoder
			d.Init(&websocket.Codec{MaxHandshake: limit}, nil)
			var answer []byte
			for rest := []byte(long); len(rest) > 0 && answer == nil; rest = rest[min(size, len(rest)):] {
				for data, more := rest[:min(size, len(rest))], true; more; {
					data, _, more, _ = d.Next(data)
					answer = d.Codec().(codec.Responder).AppendReply(answer)
				}
			}
			if status, _, _ := strings.Cut(string(answer), "\r\n"); !strings.Contains(status, strconv.Itoa(want)) {
				t.Errorf("a request of %d bytes in pieces of %d, limit %d: %s", len(long), size, limit, status)
			}
		}
	}
}

// A request without an end is not waited for.
func TestEndlessHandshake(t *testing.T) {
	for _, endless := range []string{"GET /" + strings.Repeat("x", 100), "GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 20)} {
		c := (&websocket.Codec{MaxHandshake: len(endless) - 1}).New()
		e, ok := errors.AsType[*websocket.HandshakeError](decodeError(c, endless))
		if !ok || e.Status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%.30q...: %v", endless, e)
		}
		if err := decodeError((&websocket.Codec{MaxHandshake: len(endless)}).New(), endless); err != nil {
			t.Errorf("%.30q..., at the limit: %v", endless, err)
		}
	}
}

func decodeError(c codec.Codec, data string) error {
	_, _, err := c.Decode([]byte(data))
	return err
}

func TestHandshakeRefusedReason(t *testing.T) {
	s := start(t, &websocket.Codec{})
	c := s.dial(t)
	c.write(t, request("x", "Origin: https://evil.example"))
	e, ok := errors.AsType[*websocket.HandshakeError](s.reason(t))
	if !ok || e.Status != http.StatusForbidden || !strings.Contains(e.Error(), "evil.example") {
		t.Errorf("OnClose got %v", e)
	}
}

func TestSubprotocol(t *testing.T) {
	s := start(t, &websocket.Codec{Protocols: []string{"v1", "v2"}})
	for offer, want := range map[string]string{"v2, v1": "v2", "v1": "v1", "v3": "", "v3, v1": "v1", "V1": ""} {
		t.Run(offer, func(t *testing.T) {
			c := s.dial(t)
			c.write(t, request("x", "Sec-WebSocket-Protocol: "+offer))
			r := c.response(t)
			if got := r.Header.Get("Sec-WebSocket-Protocol"); r.StatusCode != 101 || got != want {
				t.Errorf("offered %q: %s, chose %q, want %q", offer, r.Status, got, want)
			}
		})
	}
}

func TestNoHTTP(t *testing.T) {
	s := start(t, &websocket.Codec{})
	c := s.dial(t)
	c.write(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	r := c.response(t)
	testkit.Want(t, "r.StatusCode", r.StatusCode, http.StatusUpgradeRequired)
	testkit.Want(t, `r.Header.Get("Upgrade")`, r.Header.Get("Upgrade"), "websocket")
}
