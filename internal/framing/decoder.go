// Package framing applies a codec to a stream that arrives in pieces. It is for those who run
// codecs: package loop, and the tests of codecs.
package framing

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/length"
)

// A Decoder applies a codec.Codec to a stream that arrives in pieces, and keeps what is left of a
// piece until the next one comes. It belongs to one goroutine. The zero Decoder must be given a
// codec with Init first.
//
// For each piece call Next until it says that there is nothing more:
//
//	for more := true; more; {
//		var frame []byte
//		data, frame, more, err = d.Next(data)
//		if err != nil {
//			return err // the stream is lost: d.Release()
//		}
//		if frame != nil {
//			... // valid until the next call of a method of d
//		}
//	}
//
// A caller whose codec is a codec.Responder asks it for replies after each call of Next, before the
// frame is handled.
//
// Between two calls of Next the caller may also
//
//   - stop for ever: Release gives back what the Decoder holds;
//   - stop for now: Keep stores the rest of the piece, and Next(nil) goes on with it later;
//   - change the codec: SetCodec, and the bytes that follow the last frame are decoded by the new
//     one.
//
// Frames are pieces of the data given to Next whenever nothing of them was left over from before,
// so most bytes are never copied; the others are copied once, and again each time the buffer grows,
// which is at least to the double: less than three times on average, however small the pieces are.
// A Decoder with nothing left over holds no buffer. Otherwise its buffer is at most four times as
// large as the bytes in it and 64 bytes more, or 576 bytes: the length that a peer announces is not
// believed until a quarter of it has come. Until a frame from the buffer has been handled, and Next
// has been called again, the buffer stays as it is.
type Decoder struct {
	codec codec.Codec
	pool  *Pool
	rest  *leftover // nil: nothing is left over
}

// A leftover is what a Decoder has of a stream between two pieces. Most have nothing most of the
// time, so it is a thing of its own.
type leftover struct {
	// buf[off:] are the bytes left over, and all of buf if nothing is: then buf is empty but may
	// still carry the last frame.
	buf []byte
	off int
	// seen is how many of the bytes left over are known to be less than a frame.
	seen int
	lent bool // see Lend

	// unpacker is the codec, if it is one, or the codec before it until backlog is false. A Decoder
	// of such a codec has a leftover all the time.
	unpacker codec.Unpacker
	backlog  bool // unpacker may have frames in what it has consumed
}

// size returns the number of bytes left over.
func (r *leftover) size() int { return len(r.buf) - r.off }

// comesFirst reports whether Next must look at r before it looks at its data.
func (r *leftover) comesFirst() bool {
	return r != nil && (len(r.buf) != 0 && !r.lent || r.unpacker != nil)
}

// Init makes d ready for a stream framed by c, or by c.New() if c is codec.Stateful. Buffers come
// from p, or from the garbage collector if p is nil.
func (d *Decoder) Init(c codec.Codec, p *Pool) {
	*d = Decoder{pool: p}
	d.SetCodec(c)
}

// UsePool makes buffers come from p, and go there, from now on.
func (d *Decoder) UsePool(p *Pool) { d.pool = p }

// Compile checks the configuration of c and returns the form of c that is quickest to run, which
// may be c itself and is shared by all connections as c is. nil means codec.Raw. The error is that
// of c's Validate, if c is a codec.Validator.
func Compile(c codec.Codec) (codec.Codec, error) {
	if c == nil {
		return codec.Raw{}, nil
	}
	if v, ok := c.(codec.Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	if c, ok := c.(codec.Length); ok {
		l, err := (*length.Layout)(&c).Reader()
		l.Given = c
		return &l, err
	}
	return c, nil
}

// Given returns the codec that was given, or the stream's own if that is codec.Stateful.
func (d *Decoder) Given() codec.Codec {
	if l, ok := d.codec.(*length.Reader); ok {
		return l.Given.(codec.Codec)
	}
	return d.codec
}

// Codec returns the codec in use: the one given, or its compiled form, or the stream's own if it is
// codec.Stateful.
func (d *Decoder) Codec() codec.Codec { return d.codec }

// IsCompiled reports whether the codec in use is one that Compile has made. Such a codec has no
// state of the stream.
func (d *Decoder) IsCompiled() bool {
	_, ok := d.codec.(*length.Reader)
	return ok
}

// SetCodec decodes what follows with c, or with c.New() if c is codec.Stateful; nil means
// codec.Raw. If the Decoder is not in the middle of a piece, call Next(nil) afterwards: the bytes
// left over may be whole frames now. It panics if New returns nil.
func (d *Decoder) SetCodec(c codec.Codec) {
	if s, ok := c.(codec.Stateful); ok {
		if c = s.New(); c == nil {
			panic(fmt.Sprintf("codec: (%T).New returned nil", s))
		}
	}
	if compiled, err := Compile(c); err == nil {
		c = compiled
	} // else c itself returns the error when it is used
	d.codec = c
	if d.rest != nil {
		d.rest.seen = 0
	}
	if d.rest == nil || !d.rest.backlog { // otherwise what the codec before has consumed comes first
		d.lookForUnpacker()
	}
}

func (d *Decoder) lookForUnpacker() {
	u, ok := d.codec.(codec.Unpacker)
	if ok && d.rest == nil {
		d.rest = d.pool.leftover()
	}
	if d.rest != nil {
		d.rest.unpacker, d.rest.backlog = u, false
		if !ok && d.rest.size() == 0 && !d.rest.lent {
			d.drop()
		}
	}
}

// Restored says that the codec was given a saved state, or that its job is done (codec.Peer.Await):
// it may find frames now in what it has, and in what is left over.
func (d *Decoder) Restored() {
	if d.rest != nil {
		d.rest.seen = 0
		d.rest.backlog = d.rest.unpacker != nil
	}
}

// PrefixLimit is for those for whom the calls of Next and AppendFrame cost too much. If it is not
// 0, then the codec's frames are a 4-byte big-endian length and the payload, which is what is
// delivered. Of those with fewer than that many bytes of payload, one may be written without asking
// the codec, and while DecodesInPlace reports true, one that is whole at the start of a piece of
// input may be taken from it without asking the Decoder. Next must see what else is in the piece.
func (d *Decoder) PrefixLimit() int {
	if l, ok := d.codec.(*length.Reader); ok {
		return l.Plain()
	}
	return 0
}

// DecodesInPlace reports whether a piece of input would be decoded where it is: nothing is left
// over from before, and the codec has no more frames in what it has consumed.
func (d *Decoder) DecodesInPlace() bool { return d.rest == nil || d.rest.lent && !d.rest.backlog }

// Buffered returns the number of bytes left over; at least 1 if the codec may have frames in what
// it has consumed.
func (d *Decoder) Buffered() (n int) {
	if d.rest == nil {
		return 0
	}
	if d.rest.backlog {
		n = 1
	}
	if !d.rest.lent {
		n = max(n, d.rest.size())
	}
	return n
}

// FrameSize returns how long the frame is that data goes on with, or begins if nothing is left
// over, and how many bytes of it are here then; 0 if the codec cannot tell.
func (d *Decoder) FrameSize(data []byte) (size, here int) {
	if d.rest != nil && !d.rest.lent && d.rest.size() > 0 {
		return d.frameSize(d.rest.buf[d.rest.off:]), d.rest.size() + len(data)
	}
	return d.frameSize(data), len(data)
}

// Cap returns how many bytes the buffer has for what is left over.
func (d *Decoder) Cap() int {
	if d.rest == nil {
		return 0
	}
	return cap(d.rest.buf)
}

// LeftOver returns the bytes left over, for who goes on with them without the Decoder, and calls
// Release then. They are valid until the next call of a method. nil: there are none, or they are
// lent.
func (d *Decoder) LeftOver() []byte {
	if d.rest == nil || d.rest.lent || d.rest.size() == 0 {
		return nil
	}
	return d.rest.buf[d.rest.off:]
}

// Holds reports whether the codec has frames, or parts of messages, in what it has consumed. Frames
// that it has are lost by the call.
func (d *Decoder) Holds() bool {
	if a, ok := d.codec.(codec.Assembler); ok {
		if _, unfinished := a.Unfinished(); unfinished {
			return true
		}
	}
	if d.rest == nil || !d.rest.backlog {
		return false
	}
	frame, err := d.rest.unpacker.NextFrame()
	return frame != nil || err != nil
}

// Next takes one step: it decodes what was left over followed by data, and returns the part of data
// that it has not used.
//
//   - frame is not nil: the next frame. more says whether to call Next again with rest.
//   - frame is nil, more is true: the codec skipped something, or has seen only a part of data.
//     Call Next again with rest, unless the codec asked for a pause: then call Keep.
//   - frame is nil, more is false: less than a frame is left over. The Decoder has copied it; rest
//     is empty.
//   - err is the codec's, or ErrContract. The stream is lost: only Release is left to call. So it
//     is if the codec panics, which Next lets through.
//
// frame is valid until the next call of a method, and for no longer than data is.
func (d *Decoder) Next(data []byte) (rest, frame []byte, more bool, err error) {
	if d.rest.comesFirst() {
		if d.rest.unpacker != nil {
			return d.nextUnpacked(data)
		}
		return d.nextBuffered(data)
	}
	if len(data) == 0 {
		return nil, nil, false, d.stop(0, nil, nil, nil)
	}
	n, frame, err := d.codec.Decode(data)
	if err != nil || n <= 0 || n > len(data) {
		return nil, nil, false, d.stop(n, frame, err, data)
	}
	return data[n:], frame[:len(frame):len(frame)], n < len(data) || d.rest != nil, nil
}

// nextUnpacked is Next if the codec is a codec.Unpacker.
func (d *Decoder) nextUnpacked(data []byte) (rest, frame []byte, more bool, err error) {
	r := d.rest
	if r.backlog {
		frame, err = r.unpacker.NextFrame()
		if err != nil {
			return nil, nil, false, err
		}
		if frame != nil {
			return data, frame[:len(frame):len(frame)], true, nil
		}
		if d.lookForUnpacker(); d.rest != r || r.unpacker == nil { // SetCodec was called meanwhile
			return data, nil, true, nil
		}
	}
	if len(r.buf) != 0 && !r.lent {
		return d.nextBuffered(data)
	}
	if len(data) == 0 {
		return nil, nil, false, nil
	}
	n, frame, err := d.codec.Decode(data)
	if err != nil || n <= 0 || n > len(data) {
		return nil, nil, false, d.stop(n, frame, err, data)
	}
	r.backlog = true
	return data[n:], frame[:len(frame):len(frame)], true, nil
}

// stop ends a piece with an error, or with less than a frame, which it keeps.
//
//go:noinline
func (d *Decoder) stop(n int, frame []byte, err error, data []byte) error {
	if err := check(n, len(data), frame, err); err != nil {
		return err
	}
	d.Keep(data)
	if d.rest != nil {
		d.rest.seen = len(data)
	}
	return nil
}

// check returns err, or an error if a codec answered against the contract.
func check(n, size int, frame []byte, err error) error {
	switch {
	case err != nil:
		return err
	case n < 0 || n > size:
		return fmt.Errorf("%w: it consumed %d of %d bytes", codec.ErrContract, n, size)
	case n == 0 && frame != nil:
		return fmt.Errorf("%w: it returned a frame and consumed nothing", codec.ErrContract)
	}
	return nil
}

// nextBuffered is Next when something is left over. It copies as little of data as it takes to
// complete the first frame: once all that was left over is used, the rest is decoded where it is.
func (d *Decoder) nextBuffered(data []byte) (rest, frame []byte, more bool, err error) {
	r := d.rest
	left := r.size()
	rest = data
	if left == r.seen && len(data) > 0 {
		rest = data[d.take(data):]
	}
	if window := r.buf[r.off:]; len(window) > r.seen {
		n, frame, err := d.decode(window)
		if err == nil && 0 < n && n <= len(window) {
			r.backlog = r.unpacker != nil
			return r.consume(n, left, data), frame[:len(frame):len(frame)], true, nil
		}
		if err := check(n, len(window), frame, err); err != nil {
			return nil, nil, false, err
		}
		r.seen = len(window)
	}
	if len(rest) == 0 {
		d.trim()
	}
	return rest, nil, len(rest) > 0, nil
}

func (d *Decoder) decode(window []byte) (n int, frame []byte, err error) {
	if d.rest.seen > 0 {
		if r, ok := d.codec.(codec.Resumer); ok {
			return r.DecodeFrom(window, d.rest.seen)
		}
	}
	return d.codec.Decode(window)
}

// consume drops n bytes of the buffer, of which the first left are from earlier pieces and the
// others copies of the first ones of data. It returns what of data is still to be decoded.
func (r *leftover) consume(n, left int, data []byte) []byte {
	r.seen = 0
	if n >= left {
		r.buf, r.off = r.buf[:0], 0
		return data[n-left:]
	}
	r.buf = r.buf[:r.off+left]
	r.off += n
	return data
}

// take copies some of data after what is left over, and returns how much: up to the end of the
// frame if the codec can tell, else as much as there is already.
func (d *Decoder) take(data []byte) int {
	r := d.rest
	have := r.size()
	want, room := max(have, minBuffer-have), 0
	if size := d.frameSize(r.buf[r.off:]); size > have {
		want, room = size-have, size
	}
	n := min(len(data), want)
	d.grow(n, room)
	r.buf = append(r.buf, data[:n]...)
	return n
}

// frameSize returns how long the frame at the start of data will be, 0 if that is not known.
func (d *Decoder) frameSize(data []byte) int {
	if s, ok := d.codec.(codec.Sizer); ok {
		if size, exact := s.FrameSize(data); exact {
			return size
		}
	}
	return 0
}

// grow makes room for n more bytes, in a frame of size bytes altogether if size is not 0.
func (d *Decoder) grow(n, size int) {
	r := d.rest
	if cap(r.buf)-len(r.buf) >= n {
		return
	}
	d.move(room(r.size()+n, size))
}

// move takes what is left over to a buffer with room for size bytes.
func (d *Decoder) move(size int) {
	r := d.rest
	buf := append(d.pool.Get(size), r.buf[r.off:]...)
	d.pool.Put(r.buf)
	r.buf, r.off = buf, 0
}

// room returns how large to make a buffer for need bytes of a frame of size bytes, 0 if that is not
// known. With what a Pool adds it is at most 4*need+headroom, or minBuffer.
func room(need, size int) int {
	if size == 0 {
		return max(need, 2*need) // not 2*need if that overflows
	}
	most := math.MaxInt
	if need <= math.MaxInt/4 {
		most = 4 * need
	}
	if most <= maxPooled {
		most = 1<<(bits.Len(uint(most))-1) + headroom
	}
	return max(need, min(size, most))
}

// trim exchanges a buffer that became far too large when frames were consumed from it.
func (d *Decoder) trim() {
	if left := d.rest.size(); cap(d.rest.buf) > max(minBuffer, 4*left+headroom) {
		d.move(left)
	}
}

// Keep stores data, the rest that Next returned, after what is left over, and gives back the buffer
// if that is nothing. Next continues with it.
func (d *Decoder) Keep(data []byte) {
	if d.rest != nil && d.rest.lent {
		d.keepLent(data)
		return
	}
	if d.rest != nil && d.rest.size() == 0 {
		d.drop()
	}
	if len(data) == 0 {
		return
	}
	size := d.frameSize(data)
	if d.rest == nil {
		d.rest = d.pool.leftover()
	}
	if size == 0 && d.rest.buf == nil { // it may be all that comes
		d.move(len(data))
	}
	d.grow(len(data), size)
	d.rest.buf = append(d.rest.buf, data...)
}

// Release forgets what is left over and gives back the buffer. The Decoder keeps its codec and may
// be used again.
func (d *Decoder) Release() {
	if d.rest != nil {
		d.rest.backlog = false
		d.drop()
	}
}

// drop gives back the buffer. An Unpacker's leftover stays.
func (d *Decoder) drop() {
	r := d.rest
	d.pool.Put(r.buf)
	if r.unpacker != nil {
		*r = leftover{unpacker: r.unpacker, backlog: r.backlog}
		return
	}
	d.rest = nil
	d.pool.putLeftover(r)
}
