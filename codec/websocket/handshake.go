package websocket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

var headEnd = []byte("\r\n\r\n")

// headLength returns the length of the head of an HTTP request, or of an answer; 0 if its end has
// not come.
func headLength(data []byte, seen int) int {
	from := max(0, seen-len(headEnd)+1)
	if i := bytes.Index(data[from:], headEnd); i >= 0 {
		return from + i + len(headEnd)
	}
	return 0
}

// handshake reads an HTTP request, once all of its head is there, and answers it (RFC 6455 section
// 4.2). Of a request that is accepted it leaves the last byte, so that the answer is on its way
// before OnOpen is called.
func (c *connCodec) handshake(data []byte, seen int) (advance int, err error) {
	n, limit, serves := headLength(data, seen), c.config.maxHandshake(), c.serves()
	tooLong, isHTTP, late := n > limit || n == 0 && len(data) > limit, data[0] >= 'A' && data[0] <= 'Z', data[max(0, seen-2):]
	endsInLF := n == 0 && (bytes.Contains(late, []byte("\n\n")) || bytes.Contains(late, []byte("\n\r\n"))) // net/http takes that
	c.owesAnswer = !serves
	switch {
	case serves && (tooLong || endsInLF || n == 0 && !isHTTP):
		return 0, c.serve()
	case tooLong:
		return 0, c.refuse(nil, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request is longer than %d bytes", limit))
	case !isHTTP && !serves: // a TLS client, for instance, would wait for us otherwise
		return 0, c.refuse(nil, http.StatusBadRequest, "this is not HTTP")
	case n == 0:
		return 0, nil
	}
	r, err := readRequest(data[:n])
	switch {
	case serves && (err != nil || !c.config.isUpgrade(r)):
		return 0, c.serve()
	case err != nil:
		return 0, c.refuse(nil, http.StatusBadRequest, err.Error())
	case r.ProtoMajor != 1:
		return 0, c.refuse(nil, http.StatusHTTPVersionNotSupported, "this is HTTP/1.1")
	case !wantsUpgrade(r):
		return 0, c.refuse(r, http.StatusUpgradeRequired, "this is a WebSocket server")
	}
	if c.owesAnswer = true; c.peer != nil {
		r.TLS = c.peer.TLS
		if c.peer.Remote != nil {
			r.RemoteAddr = c.peer.Remote.String()
		}
	}
	if err := c.upgrade(r); err != nil {
		return 0, err
	}
	return n - 1, nil
}

// readRequest parses a head. http.ReadRequest takes names of headers that are not tokens, so
// http.Server checks them as well.
func readRequest(head []byte) (*http.Request, error) {
	in := bufio.NewReaderSize(bytes.NewReader(head), len(head))
	r, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(in); err != nil {
		return nil, err
	}
	return r, checkNames(r.Header)
}

// checkEnd returns an error if a head has ended before in has: net/http takes an empty line that
// ends in LF alone for its end. Bytes after that would be lost.
func checkEnd(in *bufio.Reader) error {
	if _, err := in.Peek(1); err == nil {
		return errors.New("an empty line that does not end in CR LF")
	}
	return nil
}

// checkNames returns an error if a name in a header is no token: the same one each time.
func checkNames(h http.Header) error {
	bad := ""
	for name := range h {
		if !isToken(name) && (bad == "" || name < bad) {
			bad = name
		}
	}
	if bad != "" {
		return fmt.Errorf("bad header name %q", bad)
	}
	return nil
}

// isToken reports whether s is a token, RFC 9110 section 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
	})
}

// wantsUpgrade tells a handshake, if perhaps a bad one, from a plain request.
func wantsUpgrade(r *http.Request) bool {
	return hasToken(r.Header["Upgrade"], "websocket") ||
		r.Header.Get("Sec-WebSocket-Key") != "" || r.Header.Get("Sec-WebSocket-Version") != ""
}

// isUpgrade tells what the codec itself answers from what HTTP does, if there is that.
func (c *Codec) isUpgrade(r *http.Request) bool {
	return wantsUpgrade(r) && (c.Path == "" || r.URL.Path == c.Path)
}

// tokens are the elements of a header that is a list, over one or more lines: RFC 9110 section
// 5.6.1.
func tokens(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for t := range strings.SplitSeq(line, ",") {
				if !yield(strings.Trim(t, " \t")) {
					return
				}
			}
		}
	}
}

// hasToken reports whether a list has a token in it, in whatever case.
func hasToken(lines []string, token string) bool {
	for t := range tokens(lines) {
		if strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}

// firstOf returns the first subprotocol that the client of r offers and that is one of ours, or "".
func firstOf(r *http.Request, ours []string) string {
	for t := range tokens(r.Header["Sec-Websocket-Protocol"]) {
		if slices.Contains(ours, t) {
			return t
		}
	}
	return ""
}

// upgrade accepts the handshake r or refuses it, or has Upgrade decide that later.
func (c *connCodec) upgrade(r *http.Request) error {
	if status, reason := c.config.admit(r); status != 0 {
		return c.refuse(r, status, reason)
	}
	protocol, hook := firstOf(r, c.config.Protocols), c.config.Upgrade
	extension, ok := c.negotiate(r.Header["Sec-Websocket-Extensions"])
	if !ok {
		return c.refuse(r, http.StatusBadRequest, "Sec-WebSocket-Extensions is no list of extensions")
	}
	if hook == nil {
		c.switchTo(r, protocol, extension, nil)
		return nil
	}
	extra := make(http.Header)
	decided := func(err error) error {
		if err != nil {
			return c.refuseWith(r, err)
		}
		if chosen := extra.Get("Sec-WebSocket-Protocol"); chosen != "" {
			if protocol = firstOf(r, []string{chosen}); protocol == "" {
				return c.refuse(r, http.StatusInternalServerError, "a subprotocol that was not asked for")
			}
		}
		c.switchTo(r, protocol, extension, extra)
		return nil
	}
	if !c.config.UpgradeBlocks || c.peer == nil || c.peer.Await == nil {
		return decided(hook(r, extra))
	}
	var verdict error
	err := c.peer.Await(func(ctx context.Context) { verdict = hook(r.WithContext(ctx), extra) },
		func() error { return decided(verdict) })
	if err != nil {
		return c.refuse(r, http.StatusServiceUnavailable, err.Error())
	}
	return nil
}

// switchTo accepts the handshake r. The answer has the fields of extra, but for ownFields.
func (c *connCodec) switchTo(r *http.Request, protocol, extension string, extra http.Header) {
	out := sink{data: append(c.reply, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"...)}
	out.field("Sec-WebSocket-Accept", acceptOf(r.Header.Get("Sec-WebSocket-Key")))
	out.field("Sec-WebSocket-Protocol", protocol)
	out.field("Sec-WebSocket-Extensions", extension)
	_ = extra.WriteSubset(&out, ownFields) // memory does not fail
	c.reply = append(append(out.data, "\r\n"...), c.beforeOpen...)
	c.phase, c.request, c.protocol, c.peer, c.beforeOpen = agreed, r, protocol, nil, nil
}

// field appends a field of a header, unless its value is empty.
func (s *sink) field(name, value string) {
	if value != "" {
		s.data = append(append(append(append(s.data, name...), ": "...), value...), "\r\n"...)
	}
}

// ownFields are those of an answer that only the handshake itself may set.
var ownFields = map[string]bool{
	"Upgrade": true, "Connection": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true,
	"Sec-Websocket-Accept": true, "Sec-Websocket-Protocol": true, "Sec-Websocket-Extensions": true,
	"Sec-Websocket-Key": true, "Sec-Websocket-Version": true,
}

// admit returns the status and the reason by which r is refused, or 0: what RFC 6455 section 4.2.1
// wants, and what it leaves to the server.
func (c *Codec) admit(r *http.Request) (status int, reason string) {
	const bad = http.StatusBadRequest
	keys, versions := r.Header["Sec-Websocket-Key"], r.Header["Sec-Websocket-Version"]
	switch {
	case c.Path != "" && r.URL.Path != c.Path:
		return http.StatusNotFound, "no WebSocket at this path"
	case r.ContentLength != 0: // -1 for chunks
		return bad, "a handshake with a body"
	case !c.allowsOrigin(r):
		return http.StatusForbidden, fmt.Sprintf("pages of %q may not connect", r.Header.Get("Origin"))
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "a handshake is a GET"
	case r.ProtoMinor < 1:
		return http.StatusHTTPVersionNotSupported, "a handshake is HTTP/1.1"
	case r.Host == "":
		return bad, "a handshake without a Host"
	case !hasToken(r.Header["Upgrade"], "websocket"):
		return bad, "a handshake whose Upgrade is not websocket"
	case !hasToken(r.Header["Connection"], "Upgrade"):
		return bad, "a handshake whose Connection is not Upgrade"
	case len(keys) != 1 || len(versions) != 1:
		return bad, "a handshake has one Sec-WebSocket-Key and one Sec-WebSocket-Version"
	case versions[0] != "13":
		return http.StatusUpgradeRequired, "Sec-WebSocket-Version must be 13"
	}
	if nonce, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(nonce) != 16 {
		return bad, "Sec-WebSocket-Key is not 16 bytes in base64"
	}
	return 0, ""
}

// allowsOrigin implements Codec.Origins.
func (c *Codec) allowsOrigin(r *http.Request) bool {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	for _, o := range c.Origins {
		if o == "*" || strings.EqualFold(o, origins[0]) {
			return true
		}
	}
	u, err := url.Parse(origins[0])
	return err == nil && u.Host != "" && strings.EqualFold(withoutPort(u.Scheme, u.Host), withoutPort(u.Scheme, r.Host))
}

// withoutPort returns host without its port, if that is the scheme's own. A browser leaves that
// port out of Origin; a proxy may write it into Host.
func withoutPort(scheme, host string) string {
	switch strings.ToLower(scheme) {
	case "https", "wss":
		return strings.TrimSuffix(host, ":443")
	case "http", "ws":
		return strings.TrimSuffix(host, ":80")
	}
	return host
}

// opened ends the handshake.
func (c *connCodec) opened() error {
	c.phase = open
	r := c.request
	defer func() { c.request = nil }()
	if c.OnOpen == nil {
		return nil
	}
	return c.OnOpen(r)
}

// refuse answers with an HTTP status and returns the reason for which the connection closes.
func (c *connCodec) refuse(r *http.Request, status int, reason string) error {
	return c.refuseWith(r, &HandshakeError{Status: status, Reason: reason})
}

func (c *connCodec) refuseWith(r *http.Request, err error) error {
	e, ok := errors.AsType[*HandshakeError](err)
	if !ok {
		e = &HandshakeError{Status: http.StatusForbidden, Reason: http.StatusText(http.StatusForbidden)}
	}
	c.phase = closed
	c.beforeOpen = nil
	c.reply = appendRefusal(c.reply, r, e)
	return err
}

// appendRefusal appends the last response of a connection. r may be nil.
func appendRefusal(dst []byte, r *http.Request, e *HandshakeError) []byte {
	header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
	switch e.Status {
	case http.StatusUpgradeRequired: // RFC 9110 section 7.8 wants Upgrade named in Connection
		header.Set("Connection", "Upgrade, close")
		header.Set("Upgrade", "websocket")
		header.Set("Sec-WebSocket-Version", "13")
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodGet)
	}
	response := http.Response{
		StatusCode: e.Status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r, Close: true,
		ContentLength: int64(len(e.Reason) + 1), Body: io.NopCloser(strings.NewReader(e.Reason + "\n")),
	}
	out := sink{data: dst}
	_ = response.Write(&out) // memory does not fail
	return out.data
}
