package loop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// input is what a connection receives, and how far that has got.
type input struct {
	decoder framing.Decoder
	plain   int32  // the decoder's Plain, or asked, or opening
	pauses  pauses // why nothing is decoded, if so
	ended   bool   // the peer has ended its output: nothing more comes
	queued  bool   // in loop.ready
}

// These in place of a codec's Plain say that there is more to ask it than for frames.
const (
	asked   = -1 // it is a Responder, an Assembler, or both
	opening = -2 // the same, and a Dialer waits for its handshake
)

// sink makes a Conn an engine.Sink without showing the methods to users. Each method is a turn of
// the loop.
type sink Conn

func (s *sink) Readable(p []byte) {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	c.idle.lastRead = l.now
	l.count.bytesIn += uint64(len(p))
	if c.isOpen() {
		c.out.atEnd |= listed // no need to list it: its turn ends here
		switch {
		case c.in.pauses != 0:
			c.hold(p)
		case c.isPiped() && c.in.decoder.Buffered() == 0:
			c.extras.pipe.pass(p)
		default:
			c.decode(p, l.now+share)
		}
		c.endTurn()
	} else if c.at() == stateLingering {
		c.throwAway(len(p))
	}
	l.leave()
}

func (s *sink) Writable() {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	c.writable()
	l.leave()
}

func (s *sink) Closed(err error) {
	c := (*Conn)(s)
	l := c.loop
	l.enter()
	if inspecting() && !c.isOver() {
		l.noteEnd(c, halfEnds{in: true})
	}
	c.peerClosed(err)
	l.leave()
}

// decode delivers the messages in data, which follows what was left over before, until end: what is
// left then goes on in a turn of its own.
func (c *Conn) decode(data []byte, end time.Duration) {
	l, slice, some := c.loop, slice{end: end, left: firstLook}, len(data) > 0
	if b := c.out.box; b != nil && b.Len() > l.highWater {
		if c.holdBack(); c.in.pauses != 0 {
			c.callHook(func() { c.keep(data) }) // the codec may be asked how long the frame is
			return
		}
	}
	l.current, l.decoding = c, c.id
	defer c.decoded()
	before := l.count.messages
	for {
		var msg []byte
		if n := c.plainFrame(data); n != 0 {
			data, msg = data[n:], data[plainHead:n:n]
		} else if data, msg, n = c.next(data); n == 0 {
			break
		}
		if msg != nil {
			l.count.messages++
			l.rest = data
			var err error
			if l.poisons {
				err = c.deliverLent(msg)
			} else {
				err = c.handler.OnMessage(c, msg)
			}
			if err != nil {
				c.refuseInput(err, "a message was refused")
			}
		}
		if len(data) == 0 && c.in.decoder.Fresh() {
			break
		}
		if !c.isOpen() {
			c.keepEarly(data)
			break
		}
		if b := c.out.box; b != nil && b.Len() > l.highWater {
			c.holdBack()
		}
		if slice.left -= 1 + int(uint(len(msg))/longMessage); slice.left <= 0 && slice.over(l) {
			c.in.pauses |= pausedForShare
		}
		if c.in.pauses != 0 {
			c.keep(data)
			break
		}
	}
	if l.server.FrameTimeout > 0 && c.isOpen() {
		c.watchFrame(some, l.count.messages != before)
	}
	l.returned = true
}

// plainHead is the size of a plain frame's header: see framing.Decoder.Plain.
const plainHead = 4

// plainFrame returns the length of the first frame in data, if it is whole and its codec need not
// be asked for it; 0 if it must be.
func (c *Conn) plainFrame(data []byte) int {
	if len(data) < plainHead || !c.in.decoder.Fresh() {
		return 0
	}
	n := binary.BigEndian.Uint32(data)
	if int64(n) >= int64(c.in.plain) || int(n) > len(data)-plainHead {
		return 0
	}
	return int(n) + plainHead
}

// next has the decoder look for the next frame. 0 steps: there is none, and no more to be done.
func (c *Conn) next(data []byte) (rest, msg []byte, steps int) {
	rest, msg, more, err := c.in.decoder.Next(data)
	if c.in.plain < 0 {
		c.sendReply()
		if c.in.plain == opening && err == nil {
			c.lookAtHandshake()
		}
		if !c.isOpen() {
			return nil, nil, 0
		}
	}
	if err != nil {
		c.undecodable(err)
		return nil, nil, 0
	}
	if more || msg != nil {
		steps = 1
	} else if c.in.decoder.Buffered() > c.loop.server.MaxFrame {
		c.limitFrame()
	}
	return rest, msg, steps
}

// limitFrame closes c if its codec waits for the end of a frame that is too long: see
// Server.MaxFrame.
func (c *Conn) limitFrame() {
	limit := c.loop.server.MaxFrame
	if l, ok := c.in.decoder.Codec().(codec.Limiter); ok {
		limit = l.FrameLimit()
	}
	if n := c.in.decoder.Buffered(); n > limit {
		c.undecodable(fmt.Errorf("%w: %d bytes without an end, limit %d", codec.ErrTooLong, n, limit))
	}
}

// decoded ends decode, after a panic too. Asking for one costs more than all the rest here.
func (c *Conn) decoded() {
	l := c.loop
	if !l.returned {
		if v := recover(); v != nil {
			c.shut(l.panicked(v))
		} else {
			c.out.atEnd &^= listed // what Readable does behind decode is left out
			l.exited()
		}
	}
	l.returned, l.decoding, l.rest = false, 0, nil
	if !c.isOpen() {
		c.dropInput()
	}
}

// undecodable closes c because the codec does not understand the peer.
func (c *Conn) undecodable(err error) {
	if errors.Is(err, codec.ErrEnd) {
		c.shut(err)
		return
	}
	c.refuseInput(err, "the input cannot be decoded")
}

// refuseInput closes c because its codec or its handler finds fault with what the peer sent, and
// says so in the log: for all connections of the server together once a second at most.
func (c *Conn) refuseInput(err error, text string) {
	if c.isClosing() { // OnMessage returned the error of a Send after Close, say
		return
	}
	c.more().ending.reason = ClosedForInput
	c.shut(err)
	if more, ok := c.loop.server.badInput.Pass(time.Now()); ok {
		c.Log().Warn().Err(err).Int("more", more).Msg(text)
	}
}
