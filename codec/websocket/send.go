package websocket

import (
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
)

// CloseWait is how long Close waits for the peer's close frame.
const CloseWait = 5 * time.Second

// A Link is what this package needs of a connection. *loop.Conn is one.
type Link interface {
	Codec() codec.Codec          // the codec in use
	Send(msg []byte) error       // a message
	Write(p []byte) (int, error) // bytes as they are
	CloseWithError(err error)    // with err as the reason

	CloseIn(d time.Duration, err error) // the same after d, unless it has closed by then
}

// Of returns the WebSocket of c, also below a codec.Stack, or nil if c has another codec. Like all
// functions here it must be called on c's loop.
func Of(c interface{ Codec() codec.Codec }) *Conn { return of(c.Codec()) }

func of(cd codec.Codec) *Conn {
	switch w := cd.(type) {
	case *Conn:
		return w
	case *clientConn:
		return &w.Conn
	case *codec.Stacked:
		return of(w.Outer())
	}
	return nil
}

// SendText sends msg as a text message, by the rules of Conn.Send. On a connection with another
// codec it is c.Send.
func SendText(c Link, msg []byte) error { return sendAs(c, Text, msg) }

// SendBinary sends msg as a binary message, by the rules of Conn.Send. On a connection with another
// codec it is c.Send.
func SendBinary(c Link, msg []byte) error { return sendAs(c, Binary, msg) }

func sendAs(c Link, kind Kind, msg []byte) error {
	w := Of(c)
	if w == nil {
		return c.Send(msg)
	}
	w.send = kind
	err := c.Send(msg)
	w.send = 0
	return err
}

// Ping sends a ping with data, which the peer's pong will bring back to Conn.OnPong. More than 125
// bytes are codec.ErrTooLong; ErrNotOpen if there is no open WebSocket.
//
// EmptyPing is a Ping without data.
func Ping(c Link, data []byte) error {
	w := Of(c)
	if w == nil || !w.IsOpen() {
		return ErrNotOpen
	}
	if len(data) > ws.MaxControlFramePayloadSize {
		return tooBig("ping", len(data), ws.MaxControlFramePayloadSize)
	}
	var buf [ws.MaxControlFramePayloadSize + ws.MaxHeaderSize]byte
	_, err := c.Write(w.appendFrame(buf[:0], ws.OpPing, 0, data))
	return err
}

// EmptyPing sends an empty ping: EmptyPing[*loop.Conn] is the Ping of a handler.Heartbeat. A pong
// counts as activity, like every byte.
func EmptyPing[C Link](c C) error { return Ping(c, nil) }

// Close closes c with a code and a reason, in the way of RFC 6455 section 7.1.2: it sends a close
// frame and waits for the peer's, for CloseWait at most. Meanwhile nothing can be sent, and
// messages that still come are dropped. OnClose then gets a *CloseError with code and reason.
// Calling it again does nothing. The rules for code and reason are those of Codec.Status.
//
// Conn.Close and CloseWithError send a close frame, too, and do not wait. So does this function if
// there is no open WebSocket.
func Close(c Link, code StatusCode, reason string) {
	reply := &CloseError{Code: code, Reason: reason}
	w := Of(c)
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
	w.phase, w.sent, w.message = closing, reply, nil
	c.CloseIn(CloseWait, reply)
}
