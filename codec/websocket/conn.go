package websocket

import (
	"cmp"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
)

// The kinds of messages (RFC 6455 section 5.6).
const (
	Text   Kind = Kind(ws.OpText)
	Binary Kind = Kind(ws.OpBinary)
)

// A Kind says whether a message is text, which is valid UTF-8, or binary.
type Kind uint8

// String returns "text" or "binary".
func (k Kind) String() string {
	if k == Binary {
		return "binary"
	}
	return "text"
}

// phase is how far a connection has got.
type phase uint8

const (
	handshaking phase = iota
	agreed            // the handshake is settled, and its last byte is still to be consumed
	open
	closing // we sent a close frame and wait for the peer's
	closed  // nothing may be sent any more
)

const (
	maxBeforeOpen = 64 << 10 // bounds, in bytes, the messages kept for after the handshake
	keptReply     = 128      // the largest reply buffer, in bytes, that a connection keeps
	maxIdleFrames = 1000     // pings, pongs and empty fragments of a peer in a second of the clock
)

// A Conn is one WebSocket: see Of. It belongs to the loop of its connection: use its fields and
// methods only there. The functions are called on the loop and must not block; a panic in one
// closes the connection.
type Conn struct {
	// OnOpen is called when the handshake is done, before the first message, and may send. Set it
	// in Accept, if at all. r is the request, without a body; it may be kept. An error closes the
	// connection: a *CloseError says with which code; any other error is also logged as bad input.
	// OnOpen is not called for a connection that never becomes a WebSocket; OnClose is.
	//
	// With a Client, the Dialer's open function already gets an open WebSocket and need not set
	// OnOpen. If it does, OnOpen is called when that function has returned. r is the request that
	// was sent, and its Response the server's answer.
	OnOpen func(r *http.Request) error

	// OnPong is called for each pong, with the data of the Ping that it answers; a peer may also
	// send unsolicited pongs. data is valid until OnPong returns.
	OnPong func(data []byte)

	of       interface{ Codec() codec.Codec } // what Of was given, or nil
	request  *http.Request                    // until OnOpen has returned
	protocol string
	phase    phase
	deflate  bool // permessage-deflate was agreed on
	kind     Kind // of the last message
}

// IsOpen reports whether the handshake is done and no close frame was sent or received. It is true
// from OnOpen on, and in a Dialer's open function.
func (c *Conn) IsOpen() bool {
	c.check()
	return c.phase == open
}

// check panics on another goroutine than the loop's, in builds that look for that: Codec does.
func (c *Conn) check() {
	if c.of != nil {
		c.of.Codec()
	}
}

// Protocol returns the subprotocol that was agreed on, or "".
func (c *Conn) Protocol() string {
	c.check()
	return c.protocol
}

// Response returns the server's answer to the request of a Client, without a body. It is nil except
// in the Dialer's open function and until OnOpen has returned.
func (c *Conn) Response() *http.Response {
	c.check()
	if c.request == nil {
		return nil
	}
	return c.request.Response
}

// Compressed reports whether permessage-deflate was agreed on.
func (c *Conn) Compressed() bool {
	c.check()
	return c.deflate
}

// Kind returns the kind of the message in OnMessage. Elsewhere it may be that of one whose
// fragments are arriving. Before the first message it is Text.
func (c *Conn) Kind() Kind {
	c.check()
	return cmp.Or(c.kind, Text)
}

// A connCodec is the codec of one connection: it has what package loop calls, and users see its
// Conn.
type connCodec struct {
	Conn

	config     *Codec
	peer       *codec.Peer // until the handshake is done; nil if the codec was not opened
	owesAnswer bool        // a request has begun to arrive, and an HTTP response must be its answer
	window     byte        // of deflate, for what we send, in bits
	sendNext   Kind        // the kind of the next message sent; 0 for the default
	fragmented bool        // a message has begun
	compressed bool        // and is compressed
	second     [2]uint32   // the clock at the last frame that countIdle counted, and how many came then
	message    []byte      // its fragments so far
	valid      int         // how many of these bytes are known to be UTF-8
	reply      []byte      // what AppendReply will append
	beforeOpen []byte      // frames sent before the handshake was done
	ourClose   *CloseError // what we closed with
}

// Decode implements codec.Codec. It unmasks frames where they lie in data.
func (c *connCodec) Decode(data []byte) (advance int, frame []byte, err error) {
	return c.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer.
func (c *connCodec) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	switch c.phase {
	case handshaking:
		advance, err = c.handshake(data, seen)
	case agreed:
		advance, err = 1, c.opened()
	case closed:
		return 0, nil, ErrNotOpen
	default:
		return c.decodeFrame(data)
	}
	return advance, nil, err
}

// decodeFrame decodes one frame, RFC 6455 section 5.2.
func (c *connCodec) decodeFrame(data []byte) (advance int, frame []byte, err error) {
	h, n, err := parseHeader(data)
	if n == 0 || err != nil {
		return 0, nil, c.fail(err)
	}
	if err := c.check(h, n); err != nil {
		return 0, nil, c.fail(err)
	}
	if h.Length > int64(len(data)-n) {
		return 0, nil, nil
	}
	advance = n + int(h.Length)
	payload := data[n:advance]
	if h.Masked {
		ws.Cipher(payload, h.Mask, 0)
	}
	switch {
	case h.OpCode.IsControl():
		err = c.control(h.OpCode, payload)
	case c.fragmented && h.Length == 0 && !h.Fin:
		err = c.countIdle()
	case c.phase == open:
		frame, err = c.data(h, payload)
	default:
		c.fragmented = !h.Fin // the peer has not seen our close frame yet, and keeps the protocol
	}
	if err != nil {
		return 0, nil, c.fail(err)
	}
	return advance, frame, nil
}

// control handles a control frame, RFC 6455 section 5.5.
func (c *connCodec) control(op ws.OpCode, payload []byte) error {
	if op == ws.OpClose {
		return c.peerCloses(payload)
	}
	if err := c.countIdle(); err != nil {
		return err
	}
	switch op {
	case ws.OpPing:
		if c.phase == open {
			c.reply = c.appendFrame(c.reply, ws.OpPong, 0, payload)
		}
	case ws.OpPong:
		if c.OnPong != nil {
			c.OnPong(payload)
		}
	}
	return nil
}

// countIdle counts a frame that brings no message closer to its end. It returns an error if the peer
// sends too many of them.
func (c *connCodec) countIdle() error {
	if now := uint32(time.Now().Unix()); now != c.second[0] {
		c.second = [2]uint32{now, 0}
	}
	if c.second[1]++; c.second[1] > maxIdleFrames {
		return &CloseError{Code: StatusPolicy, Reason: "too many pings, pongs and empty fragments"}
	}
	return nil
}

// peerCloses handles the peer's close frame: it is echoed, or answers ours.
func (c *connCodec) peerCloses(payload []byte) error {
	code, reason, err := parseClose(payload)
	if err != nil {
		return err
	}
	if c.phase == closing {
		return c.ourClose
	}
	c.reply = c.appendFrame(c.reply, ws.OpClose, 0, payload[:min(len(payload), 2)])
	c.phase = closed
	return &CloseError{Code: code, Reason: reason, ByPeer: true}
}

// fail ends a connection whose peer broke the protocol, with a close frame: RFC 6455 section 7.1.7.
func (c *connCodec) fail(err error) error {
	if err == nil {
		return nil
	}
	if c.phase == open {
		c.reply = c.appendClose(c.reply, err)
	}
	c.phase = closed
	c.message = nil
	return err
}

// data handles a data frame, RFC 6455 section 5.4. It returns the message if this was its last
// frame.
func (c *connCodec) data(h ws.Header, payload []byte) (message []byte, err error) {
	if h.OpCode != ws.OpContinuation {
		c.kind = Kind(h.OpCode)
		c.compressed = h.Rsv1()
	}
	if !h.Fin || c.fragmented {
		c.message = append(c.message, payload...)
		payload = c.message
	}
	if c.fragmented = !h.Fin; !c.fragmented {
		c.message = nil // it is the handler's until OnMessage returns, and then nobody's
	}
	if c.compressed {
		if c.fragmented {
			return nil, nil
		}
		if payload, err = inflate(payload, c.config.maxMessage()); err != nil {
			return nil, err
		}
	}
	if c.kind == Text && !c.checkText(payload, h.Fin) {
		return nil, violation(StatusInvalidData, "%w", ErrInvalidUTF8)
	}
	if c.fragmented {
		return nil, nil
	}
	c.valid = 0
	if payload == nil {
		return []byte{}, nil
	}
	return payload, nil
}

// checkText reports whether text, which is final or may go on, can be UTF-8. It does not look again
// at text that was valid before.
func (c *connCodec) checkText(text []byte, final bool) bool {
	rest := text[c.valid:]
	for i := 1; !final && i < utf8.UTFMax && i <= len(rest); i++ {
		if tail := rest[len(rest)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				rest = rest[:len(rest)-i]
			}
			break
		}
	}
	c.valid += len(rest)
	return utf8.Valid(rest)
}

// AppendFrame implements codec.Codec: a whole message in one frame, of the kind that the Codec or
// the Client says. Before the handshake is done it is kept, up to 64 KiB altogether.
func (c *connCodec) AppendFrame(dst, frame []byte) ([]byte, error) {
	kind := c.sendKind()
	c.sendNext = 0 // it is not that of what a hook sends within this Send
	switch {
	case c.phase >= closing:
		return dst, ErrNotOpen
	case len(frame) > c.config.maxSend():
		return dst, unsent("message", len(frame), c.config.maxSend())
	case kind == Text && !utf8.Valid(frame):
		return dst, ErrInvalidUTF8
	case c.phase < agreed:
		if len(c.beforeOpen)+len(frame) > maxBeforeOpen {
			return dst, unsent("backlog before the handshake", len(c.beforeOpen)+len(frame), maxBeforeOpen)
		}
		c.beforeOpen = c.appendFrame(c.beforeOpen, ws.OpCode(kind), 0, frame)
		return dst, nil
	case c.deflate && len(frame) >= c.config.compressMin():
		return c.appendDeflated(dst, ws.OpCode(kind), frame)
	}
	return c.appendFrame(dst, ws.OpCode(kind), 0, frame), nil
}

func (c *connCodec) sendKind() Kind {
	switch {
	case c.sendNext != 0:
		return c.sendNext
	case c.config.Binary:
		return Binary
	}
	return Text
}

// AppendReply implements codec.Responder: answers to the handshake, pongs, close frames.
func (c *connCodec) AppendReply(dst []byte) []byte {
	if len(c.reply) == 0 {
		return dst
	}
	dst = append(dst, c.reply...)
	if c.reply = c.reply[:0]; cap(c.reply) > keptReply {
		c.reply = nil
	}
	return dst
}

// Unfinished implements codec.Assembler: the fragments of a message whose last one has not come.
func (c *connCodec) Unfinished() (size int, ok bool) {
	if c.phase != open { // fragments are dropped
		return 0, false
	}
	return len(c.message), c.fragmented
}

// Open implements codec.Opener.
func (c *connCodec) Open(dst []byte, peer codec.Peer) (greeting []byte, timeout time.Duration, err error) {
	c.peer = &peer // Upgrade wants to know
	return dst, c.config.handshakeTimeout(), nil
}

// Opening implements codec.Opener.
func (c *connCodec) Opening() error {
	if c.phase < agreed {
		return ErrTimeout
	}
	return nil
}

// Opened implements codec.Opener. OnOpen was called already, if there is one.
func (c *connCodec) Opened() error { return nil }

// AppendFarewell implements codec.Farewell: a close frame, or an HTTP answer if a handshake has
// begun and is not done. A client that has asked for nothing would take it for the answer to its
// first request, so it gets none.
func (c *connCodec) AppendFarewell(dst []byte, err error) []byte {
	switch c.phase {
	case handshaking:
		if c.owesAnswer {
			e := &HandshakeError{Status: http.StatusServiceUnavailable, Reason: "closed"}
			if errors.Is(err, ErrTimeout) {
				e = &HandshakeError{Status: http.StatusRequestTimeout, Reason: "the request took too long"}
			}
			dst = appendRefusal(dst, nil, e)
		}
	case agreed, open:
		dst = c.appendClose(dst, err)
	}
	c.phase = closed
	return dst
}

func (c *connCodec) appendClose(dst []byte, err error) []byte {
	code, reason := c.config.status(err)
	return c.appendFrame(dst, ws.OpClose, 0, ws.NewCloseFrameBody(code, reason))
}

// FrameSize implements codec.Sizer. The bound is what MaxHandshake, MaxFrame and MaxMessage allow.
func (c *connCodec) FrameSize(data []byte) (size int, exact bool) {
	if c.phase == open || c.phase == closing {
		if h, n, err := parseHeader(data); n > 0 && err == nil && c.check(h, n) == nil {
			return n + int(h.Length), true
		}
	}
	slack := c.config.maxMessage()/256 + 64 // see checkLength
	return max(c.config.maxHandshake(), with(min(c.config.maxFrame(), c.config.maxMessage()), slack)+ws.MaxHeaderSize), false
}

// FrameKey tells which open connections of a Codec encode a message alike, so that handler.Group
// encodes a broadcast once: those that do not compress, and those that do, with the same window. It
// returns nil while messages have to be kept for after the handshake.
func (c *connCodec) FrameKey() any {
	if c.phase != open {
		return nil
	}
	if c.deflate {
		return &c.config.deflated[c.window]
	}
	return c.config
}

var (
	_ codec.Resumer   = (*connCodec)(nil)
	_ codec.Responder = (*connCodec)(nil)
	_ codec.Opener    = (*connCodec)(nil)
	_ codec.Farewell  = (*connCodec)(nil)
	_ codec.Sizer     = (*connCodec)(nil)
	_ codec.Assembler = (*connCodec)(nil)
	_ codec.Saver     = (*connCodec)(nil)
)
