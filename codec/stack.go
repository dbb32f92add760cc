package codec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Stack is a codec on a codec: the frames of Outer carry a stream of bytes, in which Inner finds
// its own frames. MQTT over WebSocket is one, or lines within blocks that have a length:
//
//	codec.Stack{Outer: &websocket.Codec{Binary: true}, Inner: codec.Lines{}}
//
//	Outer    | a frame          | another one  |
//	Inner    | one | two | thr    ee | four    |
//
// Inner's frames need not begin or end where Outer's do. Each frame sent is one frame of Inner in
// one of Outer. Either may itself be a Stack. Handshakes, replies, farewells and saved states of
// both codecs work as they do alone: Inner's first output and its replies are sent as frames of
// Outer. The Limits.MaxFrame of a server is for Outer, and Max for Inner. What Outer has delivered
// stays with the Stack: the part of it that Inner has not decoded is lost at SetCodec, NetConn and
// Detach of a connection.
//
// It is a Stateful: the codec of each connection is a *Stacked. It may be copied and shared.
type Stack struct {
	Outer, Inner Codec

	// Max is how many bytes may wait for the end of a frame of Inner, unless Inner is a Sizer with
	// a bound. 0 means DefaultMax.
	Max int
}

// Validate implements Validator.
func (s Stack) Validate() error {
	if s.Outer == nil || s.Inner == nil {
		return fmt.Errorf("%w: codec.Stack needs both Outer and Inner", ErrConfig)
	}
	if s.Max < 0 {
		return fmt.Errorf("%w: codec.Stack.Max %d is negative", ErrConfig, s.Max)
	}
	for _, c := range []Codec{s.Outer, s.Inner} {
		if v, ok := c.(Validator); ok {
			if err := v.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// New returns the codec of one connection, a *Stacked. Any goroutine may call it.
func (s Stack) New() Codec {
	c := &Stacked{max: limit(s.Max)}
	c.outer, c.outerOwn = ofConnection(s.Outer)
	c.inner, c.innerOwn = ofConnection(s.Inner)
	c.responder, _ = c.inner.(Responder)
	c.outerMore, _ = c.outer.(Unpacker)
	c.innerMore, _ = c.inner.(Unpacker)
	if b, ok := c.inner.(Sizer); ok {
		if most, _ := b.FrameSize(nil); most > 0 {
			c.max = most
		}
	}
	return c
}

// ofConnection returns the form of a codec that one connection uses, and whether it is its own.
func ofConnection(c Codec) (own Codec, isOwn bool) {
	switch c := c.(type) {
	case Stateful:
		return c.New(), true
	case Length:
		if l, err := (*length.Layout)(&c).Reader(); err == nil {
			l.Given = c
			return &l, false
		}
	}
	return c, false
}

// errStack is returned by a Stack that is used as the codec of a connection.
var errStack = fmt.Errorf("%w: a codec.Stack is a configuration; the codec of a connection is what its New returns", ErrConfig)

// Decode returns an error: New returns the codec of a connection.
func (s Stack) Decode([]byte) (int, []byte, error) { return 0, nil, errStack }

// AppendFrame returns an error: New returns the codec of a connection.
func (s Stack) AppendFrame(dst, _ []byte) ([]byte, error) { return dst, errStack }

// Stacked is the codec of one connection whose Server or Dialer has a Stack. Its methods, except
// Outer and Inner, are for callers that run codecs.
type Stacked struct {
	outer, inner       Codec
	outerOwn, innerOwn bool      // they have state of this connection
	responder          Responder // inner, if it is one
	outerMore          Unpacker  // outer, if it is one
	innerMore          Unpacker  // inner, if it is one
	max                int

	// buf[off:] is what Outer has delivered and Inner has not consumed. The first seen bytes of it
	// are known to be less than a frame.
	buf       []byte
	off, seen int
	awaits    bool // Inner waits for a job: see Peer.Await

	words []byte // Inner's first ones, until Outer's handshake is done
	reply []byte // Inner's, as frames of Outer
}

// Outer returns the connection's outer codec: its own, if the Stack's is Stateful.
func (s *Stacked) Outer() Codec { return given(s.outer) }

// Inner returns the connection's inner codec: its own, if the Stack's is Stateful.
func (s *Stacked) Inner() Codec { return given(s.inner) }

func given(c Codec) Codec {
	if l, ok := c.(*length.Reader); ok {
		return l.Given.(Codec)
	}
	return c
}

// Decode implements Codec.
func (s *Stacked) Decode(data []byte) (advance int, frame []byte, err error) {
	return s.unwrap(s.outer.Decode(data))
}

// DecodeFrom implements Resumer.
func (s *Stacked) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	if r, ok := s.outer.(Resumer); ok {
		return s.unwrap(r.DecodeFrom(data, seen))
	}
	return s.Decode(data)
}

// unwrap takes an answer of Outer's Decode, and returns the first frame of Inner in it. What
// follows in the same frame of Outer is copied: it may be a piece of the data, and NextFrame comes
// later.
func (s *Stacked) unwrap(advance int, p []byte, err error) (int, []byte, error) {
	if err != nil || advance <= 0 || len(p) == 0 {
		return advance, nil, err
	}
	if len(s.buf) > 0 {
		s.keep(p)
		frame, err := s.NextFrame()
		return advance, frame, err
	}
	n, frame, err := s.decode(p, 0)
	if err != nil {
		return advance, nil, err
	}
	if n < len(p) {
		s.keep(p[n:])
	}
	if n == 0 {
		s.seen, err = len(p), s.checkMax()
	}
	return advance, frame, err
}

// decode asks Inner, and keeps its replies.
func (s *Stacked) decode(p []byte, seen int) (n int, frame []byte, err error) {
	if r, ok := s.inner.(Resumer); ok && seen > 0 {
		n, frame, err = r.DecodeFrom(p, seen)
	} else {
		n, frame, err = s.inner.Decode(p)
	}
	switch err = s.collect(err); {
	case err != nil:
		return 0, nil, err
	case n < 0 || n > len(p) || n == 0 && frame != nil:
		return 0, nil, fmt.Errorf("%w: it consumed %d of %d bytes", ErrContract, n, len(p))
	}
	return n, frame, nil
}

// collect frames what Inner has to say after it has returned err.
func (s *Stacked) collect(err error) error {
	if s.responder == nil {
		return err
	}
	if words := s.responder.AppendReply(nil); len(words) > 0 {
		var refused error
		s.reply, refused = s.outer.AppendFrame(s.reply, words)
		err = errors.Join(err, refused)
	}
	return err
}

// keep appends what Inner is to decode later.
func (s *Stacked) keep(p []byte) {
	if s.off > 0 {
		s.buf = s.buf[:copy(s.buf, s.buf[s.off:])]
		s.off = 0
	}
	s.buf = append(s.buf, p...)
}

// checkMax returns an error if too much waits for the end of a frame.
func (s *Stacked) checkMax() error {
	if n := len(s.buf) - s.off; n > s.max {
		return fmt.Errorf("%w: %d bytes without an end inside a codec.Stack, limit %d", ErrTooLong, n, s.max)
	}
	return nil
}

// NextFrame implements Unpacker. What Inner has goes before what Outer has: see Unpacker.
func (s *Stacked) NextFrame() (frame []byte, err error) {
	for !s.awaits {
		frame, err := s.nextInner()
		if frame != nil || err != nil || s.awaits || s.outerMore == nil {
			return frame, err
		}
		p, err := s.outerMore.NextFrame()
		if p == nil || err != nil {
			return nil, err
		}
		s.keep(p)
	}
	return nil, nil
}

// nextInner returns the next frame of Inner in what it has consumed, or in buf.
func (s *Stacked) nextInner() (frame []byte, err error) {
	for !s.awaits {
		if s.innerMore != nil {
			frame, err := s.innerMore.NextFrame()
			if err = s.collect(err); frame != nil || err != nil {
				return frame, err
			}
		}
		if s.off == len(s.buf) {
			s.buf, s.off = nil, 0 // an idle connection holds no memory
			return nil, nil
		}
		if len(s.buf)-s.off == s.seen {
			return nil, nil
		}
		n, frame, err := s.decode(s.buf[s.off:], s.seen)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			s.seen = len(s.buf) - s.off
			return nil, s.checkMax()
		}
		if s.off, s.seen = s.off+n, 0; frame != nil {
			return frame, nil // a piece of buf, maybe
		}
	}
	return nil, nil
}

// scratch has buffers for frames of Inner on their way into one of Outer.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// keptScratch is the size of the largest buffer that scratch keeps.
const keptScratch = 64 << 10

// AppendFrame implements Codec.
func (s *Stacked) AppendFrame(dst, frame []byte) ([]byte, error) {
	b := scratch.Get().(*[]byte)
	wire, err := s.inner.AppendFrame((*b)[:0], frame)
	if err == nil && len(s.words) > 0 {
		dst, err = s.appendFirst(dst, wire)
	} else if err == nil {
		dst, err = s.outer.AppendFrame(dst, wire)
	}
	if cap(wire) <= keptScratch {
		*b = wire[:0]
	}
	scratch.Put(b)
	return dst, err
}

// appendFirst appends what is sent before Outer's handshake is done, which Outer may keep until
// then. Inner's first words go before it.
func (s *Stacked) appendFirst(dst, wire []byte) ([]byte, error) {
	words := s.words
	out, err := s.outer.AppendFrame(dst, words)
	if err != nil {
		return dst, err
	}
	s.words = nil
	if out, err = s.outer.AppendFrame(out, wire); err != nil {
		if len(out) > len(dst) { // Outer has not kept them
			s.words = words
		}
		return dst, err
	}
	return out, nil
}

// FrameKey returns a key that is equal for connections whose AppendFrame gives the same bytes. See
// handler.FrameKeyer.
func (s *Stacked) FrameKey() any {
	outer, inner := frameKey(s.outer, s.outerOwn), frameKey(s.inner, s.innerOwn)
	if outer == nil || inner == nil || len(s.words) > 0 {
		return nil
	}
	return [2]any{outer, inner}
}

func frameKey(c Codec, own bool) any {
	switch k := c.(type) {
	case interface{ FrameKey() any }:
		return k.FrameKey()
	case *length.Reader:
		return *k
	case Raw, Lines, Fixed, Delimiter, Varint:
		return c
	}
	return nil // it may be of a type that cannot be compared
}

// Open implements Opener. Inner's first words follow once Outer's handshake is done. Both handshakes
// together have the sum of the codecs' times, to which a codec without a limit adds nothing.
func (s *Stacked) Open(dst []byte, peer Peer) (greeting []byte, timeout time.Duration, err error) {
	greeting = dst
	if o, ok := s.outer.(Opener); ok {
		if greeting, timeout, err = o.Open(dst, peer); err != nil {
			return dst, 0, err
		}
	}
	if o, ok := s.inner.(Opener); ok {
		words, more, err := o.Open(nil, s.innerPeer(peer))
		if err != nil {
			return dst, 0, err
		}
		s.words, timeout = words, timeout+more
	}
	greeting, err = s.begin(greeting)
	if err != nil {
		return dst, 0, err
	}
	return greeting, timeout, nil
}

// innerPeer returns what Inner may do with peer: the stream of bytes is Outer's.
func (s *Stacked) innerPeer(peer Peer) Peer {
	peer.NetConn = nil
	if await := peer.Await; await != nil {
		peer.Await = func(job func(ctx context.Context), then func() error) error {
			s.awaits = true
			err := await(job, func() error {
				s.awaits, s.seen = false, 0
				return s.collect(then())
			})
			if err != nil {
				s.awaits = false
			}
			return err
		}
	}
	return peer
}

// begin appends Inner's first words to dst if Outer's handshake is done.
func (s *Stacked) begin(dst []byte) ([]byte, error) {
	if len(s.words) == 0 || opening(s.outer) != nil {
		return dst, nil
	}
	words := s.words
	s.words = nil
	return s.outer.AppendFrame(dst, words)
}

func opening(c Codec) error {
	if o, ok := c.(Opener); ok {
		return o.Opening()
	}
	return nil
}

// Opening implements Opener.
func (s *Stacked) Opening() error {
	if err := opening(s.outer); err != nil {
		return err
	}
	return opening(s.inner)
}

// Opened implements Opener.
func (s *Stacked) Opened() error {
	for _, c := range []Codec{s.outer, s.inner} {
		if o, ok := c.(Opener); ok {
			if err := o.Opened(); err != nil {
				return err
			}
		}
	}
	return nil
}

// AppendReply implements Responder.
func (s *Stacked) AppendReply(dst []byte) []byte {
	if r, ok := s.outer.(Responder); ok {
		dst = r.AppendReply(dst)
	}
	if len(s.words) > 0 {
		dst, _ = s.begin(dst) // a codec that refuses its frame has ended
	}
	if len(s.reply) > 0 {
		dst, s.reply = append(dst, s.reply...), nil
	}
	return dst
}

// AppendFarewell implements Farewell: Inner's last frame, then Outer's.
func (s *Stacked) AppendFarewell(dst []byte, err error) []byte {
	if f, ok := s.inner.(Farewell); ok && opening(s.outer) == nil {
		if words := f.AppendFarewell(nil, err); len(words) > 0 {
			dst, _ = s.outer.AppendFrame(dst, words) // refused: the outer conversation has ended
		}
	}
	if f, ok := s.outer.(Farewell); ok {
		dst = f.AppendFarewell(dst, err)
	}
	return dst
}

// FrameSize implements Sizer, for frames of Outer.
func (s *Stacked) FrameSize(data []byte) (size int, exact bool) {
	if b, ok := s.outer.(Sizer); ok {
		return b.FrameSize(data)
	}
	return 0, false
}

// Unfinished implements Assembler: what both codecs hold, and what Inner waits with.
func (s *Stacked) Unfinished() (size int, ok bool) {
	size = len(s.buf) - s.off
	ok = size > 0
	for _, c := range []Codec{s.outer, s.inner} {
		if a, is := c.(Assembler); is {
			n, more := a.Unfinished()
			size, ok = size+n, ok || more
		}
	}
	return size, ok
}

// savedStack is the first byte of what Save returns.
const savedStack = 1

// Save implements Saver. Both codecs must, as far as they have state of their own.
func (s *Stacked) Save() ([]byte, error) {
	if len(s.words) > 0 || len(s.reply) > 0 {
		return nil, errors.New("codec: a Stack cannot be saved before all it has to say is sent")
	}
	b := []byte{savedStack}
	for _, c := range []struct {
		Codec
		own bool
	}{{s.outer, s.outerOwn}, {s.inner, s.innerOwn}} {
		var state []byte
		if c.own {
			saver, ok := c.Codec.(Saver)
			if !ok {
				return nil, fmt.Errorf("codec: a Stack cannot be saved: %T is no Saver", c.Codec)
			}
			var err error
			if state, err = saver.Save(); err != nil {
				return nil, err
			}
		}
		b = append(binary.AppendUvarint(b, uint64(len(state))), state...)
	}
	return append(b, s.buf[s.off:]...), nil
}

// Restore implements Saver.
func (s *Stacked) Restore(state []byte) error {
	if len(state) == 0 || state[0] != savedStack {
		return fmt.Errorf("codec: a saved state of another version of Stack, or none: % .8x", state)
	}
	rest := state[1:]
	for _, c := range []struct {
		Codec
		own bool
	}{{s.outer, s.outerOwn}, {s.inner, s.innerOwn}} {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return errors.New("codec: a saved state of a Stack that is cut short")
		}
		one := rest[n:][:size]
		rest = rest[n+int(size):]
		saver, ok := c.Codec.(Saver)
		switch {
		case c.own != (ok && c.own) || !c.own && size > 0:
			return fmt.Errorf("codec: a saved state of a Stack with other codecs: %T has none", c.Codec)
		case c.own:
			if err := saver.Restore(one); err != nil {
				return err
			}
		}
	}
	s.buf, s.off, s.seen = append([]byte(nil), rest...), 0, 0
	return nil
}

var (
	_ Stateful  = Stack{}
	_ Validator = Stack{}
	_ Resumer   = (*Stacked)(nil)
	_ Responder = (*Stacked)(nil)
	_ Opener    = (*Stacked)(nil)
	_ Farewell  = (*Stacked)(nil)
	_ Sizer     = (*Stacked)(nil)
	_ Assembler = (*Stacked)(nil)
	_ Saver     = (*Stacked)(nil)
	_ Unpacker  = (*Stacked)(nil)
)
