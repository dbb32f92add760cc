package websocket

import (
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
)

// CloseWait is how long Close waits for the peer's close frame.
const CloseWait = 5 * time.Second

// A LoopConn is a *loop.Conn, as far as this package needs it.
type LoopConn interface {
	Codec() codec.Codec          // the codec in use
	Send(msg []byte) error       // a message
	Write(p []byte) (int, error) // bytes as they are
	CloseWithError(err error)    // with err as the reason

	CloseIn(d time.Duration, err error) // the same after d, unless it has closed by then
}

// Of returns the WebSocket of c, also below a codec.Stack, or nil if c has another codec. Like all
// functions here it must be called on c's loop.
func Of(c interface{ Codec() codec.Codec }) *Conn {
	if w := codecOf(c.Codec()); w != nil {
		if w.of == nil {
			w.of = c
		}
		return &w.Conn
	}
	return nil
}

func codecOf(cd codec.Codec) *connCodec {
	switch w := cd.(type) {
	case *connCodec:
		return w
	case *clientCodec:
		return &w.connCodec
	case *codec.Stacked:
		return codecOf(w.Outer())
	}
	return nil
}

// SendText sends msg as a text message, by the rules of Conn.Send. On a connection with another
// codec it is c.Send.
func SendText(c LoopConn, msg []byte) error { return sendAs(c, Text, msg) }

// SendBinary sends msg as a binary message, by the rules of Conn.Send. On a connection with another
// codec it is c.Send.
func SendBinary(c LoopConn, msg []byte) error { return sendAs(c, Binary, msg) }

func sendAs(c LoopConn, kind Kind, msg []byte) error {
	w := codecOf(c.Codec())
	if w == nil {
		return c.Send(msg)
	}
	w.sendNext = kind
	err := c.Send(msg)
	w.sendNext = 0
	return err
}

// Ping sends a ping with data, which the peer's pong returns to Conn.OnPong. More than 125 bytes
// are codec.ErrTooLong; ErrNotOpen if c is not an open WebSocket.
func Ping(c LoopConn, data []byte) error {
	w := codecOf(c.Codec())
	if w == nil || !w.IsOpen() {
		return ErrNotOpen
	}
	if len(data) > ws.MaxControlFramePayloadSize {
		return unsent("ping", len(data), ws.MaxControlFramePayloadSize)
	}
	var buf [ws.MaxControlFramePayloadSize + ws.MaxHeaderSize]byte
	_, err := c.Write(w.appendFrame(buf[:0], ws.OpPing, 0, data))
	return err
}

// EmptyPing sends a ping without data: EmptyPing[*loop.Conn] is the Ping of a handler.Heartbeat. A
// pong counts as activity, like every byte.
func EmptyPing[C LoopConn](c C) error { return Ping(c, nil) }

// Close closes c with a code and a reason (RFC 6455 section 7.1.2): it sends a close frame and
// waits for the peer's, for at most CloseWait. Meanwhile nothing can be sent, and messages received
// are dropped. OnClose then gets a *CloseError with code and reason, unless the connection ends
// otherwise before, with io.EOF for example. A second call does nothing. The rules for code and
// reason are those of Codec.Status.
//
// Conn.Close and CloseWithError also send a close frame, and do not wait. Neither does Close if c
// is not an open WebSocket.
func Close(c LoopConn, code StatusCode, reason string) {
	reply := &CloseError{Code: code, Reason: reason}
	w := codecOf(c.Codec())
	switch {
	case w != nil && w.phase == closing:
		return
	case w == nil || w.phase != open:
		c.CloseWithError(reply)
		return
	}
	if _, err := c.Write(w.appendClose(nil, reply)); err != nil {
		c.CloseWithError(reply) // unless it closes already: its output has ended
		return
	}
	w.phase, w.ourClose, w.message = closing, reply, nil
	c.CloseIn(CloseWait, reply)
}
