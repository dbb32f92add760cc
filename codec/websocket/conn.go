package websocket

import (
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
	answered          // the handshake is done, but for its last byte, which is still to be consumed
	open
	closing // we sent a close frame and wait for the peer's
	over    // nothing may be sent any more
)

// maxEarly bounds, in bytes, what is kept that was sent before the handshake was done.
const maxEarly = 64 << 10

// keptReply is how large a buffer for replies a connection keeps: enough for a pong.
const keptReply = 128

// A Conn is the codec of one WebSocket: see Of. It belongs to the loop of its connection, and only
// there may its fields and methods be used. The functions are called on the loop and must not
// block; a panic in one closes the connection.
type Conn struct {
	// OnOpen is called when the handshake is done, before the first message, and may send. Set it
	// in Accept, if at all. r is the request, without a body; it may be kept. An error closes the
	// connection: a *CloseError says with which code; any other is logged as bad input, too. A
	// connection that never becomes a WebSocket has no OnOpen, but it has an OnClose.
	//
	// With a Client, a Dialer's open function has an open WebSocket already, and need not set it; if
	// it does, that is called when the function has returned. r is the request that was sent, and its
	// Response the server's answer.
	OnOpen func(r *http.Request) error

	// OnPong is called for each pong, with what was given to Ping, unless the peer made it up. data
	// is valid until it returns.
	OnPong func(data []byte)

	config   *Codec
	peer     *codec.Peer   // until the handshake is done; nil: nobody has said
	request  *http.Request // until OnOpen has returned
	protocol string
	phase    phase
	begun    bool // something has come that needs an answer of ours
	deflate  bool // permessage-deflate was agreed on
	window   byte // its window for what we send, in bits
	kind     Kind // of the last message
	send     Kind // of the next one that is sent, 0 for the default

	fragmented bool   // a message has begun
	compressed bool   // it is
	message    []byte // its fragments so far
	valid      int    // of them known to be UTF-8

	reply []byte // what AppendReply will append
	early []byte // frames that were sent before the handshake was done
	sent  *CloseError
}

// IsOpen reports whether the handshake is done and no close frame was sent or received.
func (c *Conn) IsOpen() bool { return c.phase == answered || c.phase == open }

// Protocol returns the subprotocol that was agreed on, or "".
func (c *Conn) Protocol() string { return c.protocol }

// Response returns the server's answer to the request of a Client, without a body: in the open
// function of the Dialer, and until OnOpen has returned. Otherwise it is nil.
func (c *Conn) Response() *http.Response {
	if c.request == nil {
		return nil
	}
	return c.request.Response
}

// Compressed reports whether permessage-deflate was agreed on.
func (c *Conn) Compressed() bool { return c.deflate }

// Kind returns the kind of the message that OnMessage has been given. Before the first one it is
// Text.
func (c *Conn) Kind() Kind {
	if c.kind == 0 {
		return Text
	}
	return c.kind
}

// Decode implements codec.Codec. It unmasks frames where they lie in data.
func (c *Conn) Decode(data []byte) (advance int, frame []byte, err error) {
	return c.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer.
func (c *Conn) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	switch c.phase {
	case handshaking:
		advance, err = c.handshake(data, seen)
	case answered:
		advance, err = 1, c.opened()
	case over:
		return 0, nil, ErrNotOpen
	default:
		return c.decodeFrame(data)
	}
	return advance, nil, err
}

// decodeFrame decodes one frame, RFC 6455 section 5.2.
func (c *Conn) decodeFrame(data []byte) (advance int, frame []byte, err error) {
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
	if h.OpCode.IsControl() {
		err = c.control(h.OpCode, payload)
	} else if c.phase == open {
		frame, err = c.data(h, payload)
	} else {
		c.fragmented = !h.Fin // the peer has not seen our close frame yet, and keeps the protocol
	}
	if err != nil {
		return 0, nil, c.fail(err)
	}
	return advance, frame, nil
}

// control handles a control frame, RFC 6455 section 5.5.
func (c *Conn) control(op ws.OpCode, payload []byte) error {
	switch op {
	case ws.OpPing:
		if c.phase == open {
			c.reply = c.appendFrame(c.reply, ws.OpPong, 0, payload)
		}
	case ws.OpPong:
		if c.OnPong != nil {
			c.OnPong(payload)
		}
	case ws.OpClose:
		return c.closed(payload)
	}
	return nil
}

// closed handles the peer's close frame: it is echoed, or answers ours.
func (c *Conn) closed(payload []byte) error {
	code, reason, err := parseClose(payload)
	if err != nil {
		return err
	}
	if c.phase == closing {
		return c.sent
	}
	c.reply = c.appendFrame(c.reply, ws.OpClose, 0, payload[:min(len(payload), 2)])
	c.phase = over
	return &CloseError{Code: code, Reason: reason, ByPeer: true}
}

// fail makes a close frame the last word of a connection that fails because of the peer (RFC 6455
// section 7.1.7).
func (c *Conn) fail(err error) error {
	if err == nil {
		return nil
	}
	if c.phase == open {
		c.reply = c.appendClose(c.reply, err)
	}
	c.phase = over
	c.message = nil
	return err
}

// data handles a data frame, RFC 6455 section 5.4. It returns the message if this was its last
// frame.
func (c *Conn) data(h ws.Header, payload []byte) (message []byte, err error) {
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
func (c *Conn) checkText(text []byte, final bool) bool {
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
func (c *Conn) AppendFrame(dst, frame []byte) ([]byte, error) {
	kind := c.sendKind()
	switch {
	case c.phase >= closing:
		return dst, ErrNotOpen
	case len(frame) > c.config.maxSend():
		return dst, tooBig("message", len(frame), c.config.maxSend())
	case kind == Text && !utf8.Valid(frame):
		return dst, ErrInvalidUTF8
	case c.phase < answered:
		if len(c.early)+len(frame) > maxEarly {
			return dst, tooBig("backlog before the handshake", len(c.early)+len(frame), maxEarly)
		}
		c.early = c.appendFrame(c.early, ws.OpCode(kind), 0, frame)
		return dst, nil
	case c.deflate && len(frame) >= c.config.compressMin():
		return c.appendDeflated(dst, ws.OpCode(kind), frame)
	}
	return c.appendFrame(dst, ws.OpCode(kind), 0, frame), nil
}

func (c *Conn) sendKind() Kind {
	switch {
	case c.send != 0:
		return c.send
	case c.config.Binary:
		return Binary
	}
	return Text
}

// AppendReply implements codec.Responder: answers to the handshake, pongs, close frames.
func (c *Conn) AppendReply(dst []byte) []byte {
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
func (c *Conn) Unfinished() (size int, ok bool) {
	if c.phase != open { // fragments are dropped
		return 0, false
	}
	return len(c.message), c.fragmented
}

// Open implements codec.Opener. It is for who runs the codec.
func (c *Conn) Open(dst []byte, peer codec.Peer) (greeting []byte, timeout time.Duration, err error) {
	c.peer = &peer // Upgrade wants to know
	return dst, c.config.handshakeTimeout(), nil
}

// Opening implements codec.Opener.
func (c *Conn) Opening() error {
	if c.phase < answered {
		return ErrTimeout
	}
	return nil
}

// Opened implements codec.Opener. OnOpen was called already, if there is one.
func (c *Conn) Opened() error { return nil }

// AppendFarewell implements codec.Farewell: a close frame, or an HTTP answer if a handshake has
// begun and is not done. A client that has asked for nothing would take it for the answer to its
// first request, so it gets none.
func (c *Conn) AppendFarewell(dst []byte, err error) []byte {
	switch c.phase {
	case handshaking:
		if c.begun {
			e := &HandshakeError{Status: http.StatusServiceUnavailable, Reason: "closed"}
			if errors.Is(err, ErrTimeout) {
				e = &HandshakeError{Status: http.StatusRequestTimeout, Reason: "the request took too long"}
			}
			dst = appendRefusal(dst, nil, e)
		}
	case answered, open:
		dst = c.appendClose(dst, err)
	}
	c.phase = over
	return dst
}

func (c *Conn) appendClose(dst []byte, err error) []byte {
	code, reason := c.config.status(err)
	return c.appendFrame(dst, ws.OpClose, 0, ws.NewCloseFrameBody(code, reason))
}

// FrameSize implements codec.Sizer. The bound is what MaxHandshake, MaxFrame and MaxMessage allow.
func (c *Conn) FrameSize(data []byte) (size int, exact bool) {
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
func (c *Conn) FrameKey() any {
	if c.phase != open {
		return nil
	}
	if c.deflate {
		return &c.config.deflated[c.window]
	}
	return c.config
}

var (
	_ codec.Resumer   = (*Conn)(nil)
	_ codec.Responder = (*Conn)(nil)
	_ codec.Opener    = (*Conn)(nil)
	_ codec.Farewell  = (*Conn)(nil)
	_ codec.Sizer     = (*Conn)(nil)
	_ codec.Assembler = (*Conn)(nil)
	_ codec.Saver     = (*Conn)(nil)
)
