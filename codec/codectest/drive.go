package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// errBroken marks errors that are the codec's fault, as opposed to those it rightly finds in bad
// bytes.
var errBroken = errors.New("the codec breaks its contract")

// A driver decodes one connection's bytes in the plainest way there is, and looks at every answer.
type driver struct {
	codec  codec.Codec
	resume bool   // use DecodeFrom where the codec has it
	data   []byte // bytes not decoded yet
	seen   int    // of them known to be less than a frame
	frames [][]byte
}

func newDriver(c codec.Codec, resume bool) *driver {
	return &driver{codec: begin(c), resume: resume}
}

// feed decodes piece by piece. Its error is the codec's, or errBroken.
func (d *driver) feed(pieces ...[]byte) error {
	for _, piece := range pieces {
		d.data = append(d.data, piece...)
		for len(d.data) > 0 {
			n, err := d.step()
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
	}
	return nil
}

// clone returns a copy whose capacity ends with it: a codec that looks behind its data panics.
func clone(b []byte) []byte { return slices.Clip(bytes.Clone(b)) }

// ruin overwrites what is not the codec's any more.
func ruin(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}

// step calls Decode once. It gives it a copy of the data, and ruins the copy afterwards: a codec
// that has kept a piece of it, or that changes more than it consumes, gives itself away.
func (d *driver) step() (advance int, err error) {
	data := clone(d.data)
	advance, frame, err := d.decode(data)
	if err != nil {
		return 0, cmp.Or(d.reply(), err)
	}
	switch {
	case advance < 0 || advance > len(data):
		return 0, fmt.Errorf("%w: Decode consumed %d of %d bytes", errBroken, advance, len(data))
	case advance == 0 && frame != nil:
		return 0, fmt.Errorf("%w: Decode returned the frame %s and consumed nothing", errBroken, show(frame))
	}
	if err := d.checkLimit(advance, frame); err != nil {
		return 0, err
	}
	if !bytes.Equal(data[advance:], d.data[advance:]) {
		return 0, fmt.Errorf("%w: Decode changed data that it did not consume", errBroken)
	}
	if err := cmp.Or(d.reply(), d.held()); err != nil {
		return 0, err
	}
	if frame != nil {
		d.frames = append(d.frames, append([]byte{}, frame...))
	}
	ruin(data)
	d.data, d.seen = d.data[advance:], 0
	if advance == 0 {
		d.seen = len(d.data)
		return 0, nil
	}
	return advance, d.unpack(advance)
}

// unpack takes what a codec.Unpacker finds in the n bytes that it has consumed. The data is ruined
// by then.
func (d *driver) unpack(n int) error {
	u, ok := d.codec.(codec.Unpacker)
	for left := newBudget(n); ok; {
		frame, err := u.NextFrame()
		if err := cmp.Or(d.reply(), err, d.held()); err != nil {
			return err
		}
		if frame == nil {
			return nil
		}
		if err := left.take(frame); err != nil {
			return err
		}
		d.frames = append(d.frames, append([]byte{}, frame...))
	}
	return nil
}

// A budget bounds what NextFrame may return for some bytes of input, so that a codec that returns a
// frame without end does not hang the checks.
type budget int

func newBudget(input int) budget { return budget(8<<20 + 64*input) }

func (b *budget) take(frame []byte) error {
	if *b -= budget(16 + min(len(frame), 240)); *b < 0 { // one large frame may be packed well
		return fmt.Errorf("%w: NextFrame returns frames without end, the last one %s: return nil if there is none left", errBroken, show(frame))
	}
	return nil
}

func (d *driver) decode(data []byte) (advance int, frame []byte, err error) {
	if r, ok := d.codec.(codec.Resumer); ok && d.resume {
		return r.DecodeFrom(data, d.seen)
	}
	return d.codec.Decode(data)
}

// reply collects what a Responder has to say: after what is there already, and once.
func (d *driver) reply() error {
	r, ok := d.codec.(codec.Responder)
	if !ok {
		return nil
	}
	if reply := r.AppendReply([]byte("before")); !bytes.HasPrefix(reply, []byte("before")) {
		return fmt.Errorf("%w: AppendReply dropped what it was to append to", errBroken)
	}
	if reply := r.AppendReply(nil); len(reply) > 0 {
		return fmt.Errorf("%w: AppendReply says %s a second time", errBroken, show(reply))
	}
	return nil
}

// cut cuts wire into random pieces of at most n bytes.
func cut(wire []byte, n int, rnd *rand.Rand) (pieces [][]byte) {
	for len(wire) > 0 {
		k := min(len(wire), 1+rnd.IntN(n))
		pieces, wire = append(pieces, wire[:k]), wire[k:]
	}
	return pieces
}

// random is the same for each run, so that a failure can be had again.
func random() *rand.Rand { return rand.New(rand.NewPCG(0x6c6f6f70, 0x776865656c)) }

// next is d.Next by a caller that takes the replies, as a server does.
func next(d *framing.Decoder, data []byte) (rest, frame []byte, more bool, err error) {
	rest, frame, more, err = d.Next(data)
	if r, ok := d.Codec().(codec.Responder); ok {
		r.AppendReply(nil)
	}
	return rest, frame, more, err
}

// decodeAll feeds copies of pieces to a Decoder and returns copies of the frames. It reports the
// most bytes that the Decoder ever had left over, with what its codec held of a message in parts.
func decodeAll(d *framing.Decoder, pieces ...[]byte) (frames [][]byte, most int, err error) {
	for _, piece := range pieces {
		data, left := clone(piece), newBudget(d.Buffered()+len(piece))
		for more := true; more; {
			var frame []byte
			if data, frame, more, err = next(d, data); err != nil {
				return frames, most, err
			}
			if frame != nil {
				if err := left.take(frame); err != nil {
					return frames, most, err
				}
				frames = append(frames, append([]byte{}, frame...))
			}
		}
		parts, _ := unfinished(d.Codec())
		most = max(most, d.Buffered()+parts)
	}
	return frames, most, nil
}

// checkLimit wants a codec.Sizer to find no frame that is longer than its bound, and to wait for
// none.
func (d *driver) checkLimit(advance int, frame []byte) error {
	s, ok := d.codec.(codec.Sizer)
	if !ok {
		return nil
	}
	switch limit, _ := s.FrameSize(nil); {
	case limit == 0:
	case advance == 0 && len(d.data) > limit:
		return fmt.Errorf("%w: by FrameSize a frame has %d bytes at most, and Decode waits for more than %d", errBroken, limit, len(d.data))
	case frame != nil && advance > limit:
		return fmt.Errorf("%w: by FrameSize a frame has %d bytes at most, and Decode found one of %d", errBroken, limit, advance)
	}
	return nil
}
