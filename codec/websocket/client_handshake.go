package websocket

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws/wsflate"

	"github.com/loopwheel/loopwheel/codec"
)

const (
	maxBody    = 1 << 10   // bounds HandshakeError.Body
	statusLine = "HTTP/1." // what an answer begins with
)

var (
	// ErrNotSecure: the URL of a Client is wss, and the connection has no TLS. Nothing was sent.
	ErrNotSecure = errors.New("websocket: a wss URL on a connection without TLS: set loop.Dialer.TLS to what Client.TLS returns")

	errNotAsked = errors.New("websocket: the codec of a Client was not asked for its greeting")
)

// A clientCodec is the codec of one connection of a Client.
type clientCodec struct {
	connCodec
	client  *Client
	accept  string // what Sec-WebSocket-Accept must be
	skipped int    // bytes of answers that are not the last
}

// Open implements codec.Opener. It says the request (RFC 6455 section 4.1).
func (c *clientCodec) Open(dst []byte, peer codec.Peer) (greeting []byte, timeout time.Duration, err error) {
	r, err := c.client.request(peer.TLS != nil)
	if err != nil {
		return dst, 0, err
	}
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	key := base64.StdEncoding.EncodeToString(nonce[:])
	// The names are written as the RFC has them: there are servers that look for these.
	r.Header["Upgrade"], r.Header["Connection"] = []string{"websocket"}, []string{"Upgrade"}
	r.Header["Sec-WebSocket-Key"], r.Header["Sec-WebSocket-Version"] = []string{key}, []string{"13"}
	if len(c.client.Protocols) > 0 {
		r.Header["Sec-WebSocket-Protocol"] = []string{strings.Join(c.client.Protocols, ", ")}
	}
	if c.client.Compress {
		r.Header["Sec-WebSocket-Extensions"] = []string{deflateOffer}
	}
	out := bytes.NewBuffer(dst)
	if err := r.Write(out); err != nil {
		return dst, 0, fmt.Errorf("websocket: the request: %w", err)
	}
	c.request, c.accept = r, acceptOf(key)
	return out.Bytes(), c.config.handshakeTimeout(), nil
}

// acceptOf returns the Sec-WebSocket-Accept that answers a key (RFC 6455 section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// request returns the request of one connection, without what is the handshake's own.
func (c *Client) request(secure bool) (*http.Request, error) {
	u, err := c.parse()
	if err != nil {
		return nil, err
	}
	if err := checkSecure(u, secure); err != nil {
		return nil, err
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: c.Header.Clone()}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	if c.Prepare == nil {
		return r, nil
	}
	if err := c.Prepare(r); err != nil {
		return nil, err
	}
	if err := checkURL(r.URL); err != nil {
		return nil, wrong("Client", "Prepare: URL: %w", err)
	}
	if err := checkSecure(r.URL, secure); err != nil {
		return nil, err
	}
	if err := checkHeader(r.Header); err != nil {
		return nil, wrong("Client", "Prepare: the Header: %w", err)
	}
	return &http.Request{Method: http.MethodGet, URL: r.URL, Host: r.Host, Header: r.Header}, nil
}

func checkSecure(u *url.URL, secure bool) error {
	if u.Scheme == "wss" && !secure {
		return ErrNotSecure
	}
	return nil
}

// Decode implements codec.Codec.
func (c *clientCodec) Decode(data []byte) (advance int, frame []byte, err error) {
	return c.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer.
func (c *clientCodec) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	switch c.phase {
	case handshaking:
		if advance, err = c.answer(data, seen); err != nil {
			c.phase, c.beforeOpen, c.request = closed, nil, nil
			return 0, nil, err
		}
		return advance, nil, nil
	case agreed:
		if c.OnOpen == nil { // the dialer may still set it: see Opened
			c.phase = open
			return 1, nil, nil
		}
	case open:
		c.request = nil // nobody has dialed
	}
	return c.connCodec.DecodeFrom(data, seen)
}

// Opened implements codec.Opener: the dialer's callback may have set OnOpen.
func (c *clientCodec) Opened() error {
	if c.phase != open || c.request == nil { // it was closed, or OnOpen was set before
		c.request = nil
		return nil
	}
	return c.opened()
}

// Opening implements codec.Opener. All of the answer must have been consumed: who gets the
// connection then may do with what follows as it likes.
func (c *clientCodec) Opening() error {
	if c.phase < open {
		return ErrTimeout
	}
	return nil
}

// answer reads the server's answer, once all of its head is there. Of one that opens the WebSocket
// it leaves the last byte, so that what was sent before is on its way when OnOpen is called.
func (c *clientCodec) answer(data []byte, seen int) (advance int, err error) {
	n, limit := headLength(data, seen), c.config.maxHandshake()
	switch {
	case c.request == nil:
		return 0, errNotAsked
	case !strings.HasPrefix(statusLine, string(data[:min(len(data), len(statusLine))])):
		return 0, wrongAnswer(nil, codec.ErrMalformed, "this is not HTTP")
	case c.skipped+n > limit || n == 0 && c.skipped+len(data) > limit:
		return 0, wrongAnswer(nil, codec.ErrTooLong, fmt.Sprintf("it is longer than %d bytes", limit))
	case n == 0:
		return 0, nil
	}
	r, err := readAnswer(data, n, c.request)
	if err != nil {
		return 0, err
	}
	switch {
	case r.StatusCode == http.StatusSwitchingProtocols:
		return n - 1, c.accepted(r)
	case r.StatusCode < http.StatusOK: // another one follows
		c.skipped += n
		return n, nil
	}
	return 0, refusal(r)
}

// readAnswer parses the answer at the start of data, whose head has n bytes. Of its body there is
// what has come.
func readAnswer(data []byte, n int, to *http.Request) (*http.Response, error) {
	in := bufio.NewReader(bytes.NewReader(data[:n]))
	r, err := http.ReadResponse(in, to)
	if err == nil {
		err = checkEnd(in)
	}
	if err == nil && r.StatusCode >= http.StatusOK {
		r, err = http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), to)
	}
	if err == nil {
		err = checkNames(r.Header)
	}
	if err == nil && r.StatusCode < 100 {
		err = fmt.Errorf("bad status %d", r.StatusCode)
	}
	if err != nil {
		return nil, wrongAnswer(nil, codec.ErrMalformed, err.Error())
	}
	return r, nil
}

// accepted opens the WebSocket, if the answer is what the RFC wants.
func (c *clientCodec) accepted(r *http.Response) error {
	upgrade, accept := r.Header["Upgrade"], r.Header["Sec-Websocket-Accept"]
	wrong := ""
	switch {
	case r.ProtoMinor < 1:
		wrong = "it is " + r.Proto
	case len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket"):
		wrong = fmt.Sprintf("its Upgrade is %q", upgrade)
	case !hasToken(r.Header["Connection"], "Upgrade"):
		wrong = fmt.Sprintf("its Connection is %q", r.Header["Connection"])
	case len(accept) != 1 || accept[0] != c.accept:
		wrong = "its Sec-WebSocket-Accept does not match our key"
	case !c.agreeProtocol(r.Header["Sec-Websocket-Protocol"]):
		wrong = fmt.Sprintf("the subprotocol %q, which was not asked for", r.Header["Sec-Websocket-Protocol"])
	case !c.agreeExtensions(r.Header["Sec-Websocket-Extensions"]):
		wrong = fmt.Sprintf("the extensions %q, which were not offered in that form", r.Header["Sec-Websocket-Extensions"])
	}
	if wrong != "" {
		return wrongAnswer(r, codec.ErrMalformed, wrong)
	}
	r.Body = http.NoBody
	c.phase, c.request.Response = agreed, r
	c.reply, c.beforeOpen = append(c.reply, c.beforeOpen...), nil
	return nil
}

func (c *clientCodec) agreeProtocol(chosen []string) bool {
	if len(chosen) != 1 {
		return len(chosen) == 0
	}
	c.protocol = chosen[0]
	return slices.Contains(c.client.Protocols, c.protocol)
}

// deflateOffer asks for permessage-deflate as both sides here speak it, with whatever window the
// server wants to have.
var deflateOffer = wsflate.ExtensionName + "; server_no_context_takeover; client_no_context_takeover; client_max_window_bits"

// agreeExtensions reports whether the server has chosen what we have asked for (RFC 7692 section
// 7.1). That it compresses each message for itself it has to say: what is left out it need not do.
func (c *clientCodec) agreeExtensions(lines []string) bool {
	if len(lines) == 0 {
		return true
	}
	chosen, ok := httphead.ParseOptions([]byte(strings.Join(lines, ",")), nil)
	if !ok || !c.client.Compress || len(chosen) != 1 {
		return false
	}
	params, ok := parseDeflate(chosen[0])
	if !ok || !params.ServerNoContextTakeover {
		return false
	}
	c.deflate, c.window = true, maxWindow
	if bits := params.ClientMaxWindowBits; bits.Defined() {
		c.window = byte(bits)
	}
	return c.window > 1 // in an answer there is a number to it
}

// refusal returns the reason for which a connection closes whose server does not want it.
func refusal(r *http.Response) error {
	_, reason, _ := strings.Cut(r.Status, " ")
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody)) // an error: not all of it has come
	return &HandshakeError{Status: r.StatusCode, Reason: printable(reason), Header: r.Header, Body: body}
}

// wrongAnswer returns the reason for which a connection closes whose server breaks the protocol. r
// is nil if the answer is not HTTP.
func wrongAnswer(r *http.Response, kind error, what string) error {
	e := &HandshakeError{Err: fmt.Errorf("%w: the server's answer: %s", kind, printable(what))}
	if r != nil {
		e.Status, e.Header = r.StatusCode, r.Header
	}
	return e
}

// printable returns s as it may be logged.
func printable(s string) string {
	return cutReason(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s))
}

// AppendFarewell implements codec.Farewell: a close frame, if there is a WebSocket.
func (c *clientCodec) AppendFarewell(dst []byte, err error) []byte {
	if c.phase == handshaking {
		c.phase = closed
		return dst
	}
	return c.connCodec.AppendFarewell(dst, err)
}

// FrameKey returns nil: each frame has a different mask.
func (c *clientCodec) FrameKey() any { return nil }
