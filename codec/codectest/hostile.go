package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// unlimited is the length of frames that only a codec without a limit takes.
const unlimited = 16 << 20

// maxFrame returns Max, or the length at which AppendFrame begins to refuse frames.
func (s *Suite) maxFrame() (int, error) {
	if s.Max > 0 {
		return s.Max, nil
	}
	low := -1
	for _, frame := range s.Samples {
		low = max(low, len(frame))
	}
	takes := func(n int) bool {
		frame := s.Fill(n)
		return frame != nil && s.accepts(frame) == nil
	}
	high := max(1, 2*low)
	for ; takes(high); high *= 2 {
		if low = high; low >= unlimited {
			return 0, fmt.Errorf("no limit: AppendFrame takes a frame of %d bytes (set Suite.Max if it may)", low)
		}
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; takes(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// limits wants frames of the limit and just below to pass, and one just above to be refused,
// without a trace in dst.
func limits(s *Suite) error {
	if s.Unframed {
		return nil
	}
	limit, err := s.maxFrame()
	if err != nil {
		return err
	}
	for n := max(0, limit-2); n <= limit; n++ {
		frame := s.Fill(n)
		if frame == nil || n < limit && s.accepts(frame) != nil {
			continue // some lengths may be no frames at all
		}
		wire, err := s.wire(frame)
		if err != nil {
			return fmt.Errorf("at the limit of %d: %w", limit, err)
		}
		for _, pieces := range [][][]byte{{wire}, cut(wire, len(wire)/10+1, random())} {
			if err := s.expect([][]byte{frame}, pieces...); err != nil {
				return fmt.Errorf("the frame that Suite.Fill returns for %d bytes, limit %d: %w", n, limit, err)
			}
		}
	}
	above := s.Fill(limit + 1)
	if above == nil {
		return nil
	}
	got, err := encode(begin(s.Peer()), []byte("before"), above)
	if !errors.Is(err, codec.ErrTooLong) {
		return fmt.Errorf("AppendFrame of %d bytes, limit %d: error %v, want codec.ErrTooLong", limit+1, limit, err)
	}
	if string(got) != "before" {
		return fmt.Errorf("AppendFrame failed, but dst became %s", show(got))
	}
	return nil
}

// refused wants TooLong and Malformed to be refused, in whatever pieces they come.
func refused(s *Suite) error {
	for _, group := range []struct {
		wires [][]byte
		want  error
	}{{s.TooLong, codec.ErrTooLong}, {s.Malformed, codec.ErrMalformed}} {
		for _, wire := range group.wires {
			size := max(1, len(wire)/1000)
			for _, pieces := range [][][]byte{{wire}, slices.Collect(slices.Chunk(wire, size))} {
				for _, resume := range []bool{false, true} {
					if err := newDriver(s.New(), resume).feed(pieces...); !errors.Is(err, group.want) {
						return fmt.Errorf("%s in %d pieces: error %v, want %w", show(wire), len(pieces), err, group.want)
					}
				}
			}
		}
	}
	return nil
}

// flood wants a codec to make frames of, or to refuse, any number of bytes: it must not wait for
// ever more of them.
func flood(s *Suite) error {
	limit := codec.DefaultMax
	if !s.Unframed {
		var err error
		if limit, err = s.maxFrame(); err != nil {
			return err
		}
	}
	// A codec that is no Resumer looks at all that has come with each piece: more than some hundred
	// pieces up to a large limit would look like a hang.
	size := max(4<<10, limit/64)
	slack := size + 64<<10 // for headers
	for _, b := range []byte{0, 1, ' ', 'x', 0x7f, 0x80, 0xff} {
		piece := bytes.Repeat([]byte{b}, size)
		d := newDecoder(s.New())
		for fed := 0; fed < 4*(limit+slack); fed += len(piece) {
			_, most, err := decodeAll(d, piece)
			if errors.Is(err, codec.ErrContract) || errors.Is(err, errBroken) {
				return err
			}
			if err != nil {
				break
			}
			if most > limit+slack {
				return fmt.Errorf("it waits for more after %d bytes %#x, although its limit is %d", most, b, limit)
			}
		}
	}
	return nil
}

// memory wants a codec that consumes bytes, and never says that it waits, not to keep them: what a
// peer can have it hold must have a limit, and be seen by Unfinished.
func memory(s *Suite) error {
	const fed, most = 4 << 20, 2 << 20
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for _, b := range []byte{0, ' ', 'x', '\n', 0xff} {
		piece := bytes.Repeat([]byte{b}, 4<<10)
		d := newDecoder(s.New())
		before := heap()
		if !takes(d, piece, fed) {
			continue
		}
		if grown := heap() - before; grown > most {
			return fmt.Errorf("it keeps %d bytes of %d bytes %#x, which it has consumed", grown, fed, b)
		}
		runtime.KeepAlive(d)
	}
	return nil
}

// takes feeds many pieces, and reports whether the codec consumed them all.
func takes(d *framing.Decoder, piece []byte, bytes int) bool {
	for ; bytes > 0; bytes -= len(piece) {
		data, left := slices.Clone(piece), newBudget(d.Buffered()+len(piece))
		for more := true; more; {
			var frame []byte
			var err error
			if data, frame, more, err = next(d, data); err != nil || left.take(frame) != nil {
				return false
			}
		}
		if d.Buffered() > len(piece) {
			return false
		}
	}
	return true
}

func newDecoder(c codec.Codec) *framing.Decoder {
	d := new(framing.Decoder)
	d.Init(c, nil)
	_ = open(d.Codec())
	return d
}

// hostile wants bytes that were damaged, or were never frames, to give the same frames and the same
// kind of error in any pieces, and no panic.
func hostile(s *Suite) error {
	rnd := random()
	for i := range 256 + 300 {
		wire, err := s.damaged(rnd)
		if err != nil {
			return err
		}
		if i < 256 { // each byte may be a mark at the start of a frame
			if wire, err = s.wire(s.Samples[i%len(s.Samples)]); err != nil {
				return err
			}
			wire = slices.Insert(wire[:min(len(wire), byteByByteMost)], 0, byte(i))
		}
		whole := newDriver(s.New(), false)
		wholeErr := whole.feed(wire)
		if errors.Is(wholeErr, errBroken) {
			return fmt.Errorf("given %q: %w", wire, wholeErr)
		}
		pieces := cut(wire, 1+rnd.IntN(len(wire)), rnd)
		parts := newDriver(s.New(), true)
		partsErr := parts.feed(pieces...)
		if kind(wholeErr) != kind(partsErr) {
			return fmt.Errorf("given %q: error %v, but in %d pieces %v", wire, wholeErr, len(pieces), partsErr)
		}
		if err := s.same(parts.frames, whole.frames); err != nil {
			return fmt.Errorf("given %q in %d pieces, other than whole: %w", wire, len(pieces), err)
		}
	}
	return nil
}

// damaged returns a few frames with some bytes changed, inserted or cut off, or random bytes. It is
// never empty.
func (s *Suite) damaged(rnd *rand.Rand) ([]byte, error) {
	var samples [][]byte
	for range rnd.IntN(4) {
		if frame := s.Samples[rnd.IntN(len(s.Samples))]; len(frame) <= byteByByteMost {
			samples = append(samples, frame)
		}
	}
	wire, err := s.wire(samples...)
	if err != nil {
		return nil, err
	}
	for range 1 + rnd.IntN(4) {
		at := rnd.IntN(len(wire) + 1)
		switch b := byte(rnd.Uint32()); {
		case rnd.IntN(3) == 0 && at > 0:
			wire = wire[:at]
		case rnd.IntN(2) == 0 && at < len(wire):
			wire[at] = b
		default:
			wire = slices.Insert(wire, at, b)
		}
	}
	return wire, nil
}

// payloads wants whatever is given to AppendFrame to be one frame to the peer, or to be refused
// without a trace: nobody who chooses what is in a frame may choose where it ends, or what follows
// it. The bytes to try are those that the codec itself writes, such as a delimiter.
func payloads(s *Suite) error {
	rnd := random()
	behind := s.Samples[0]
	for range 300 {
		payload, err := s.damaged(rnd)
		if err != nil {
			return err
		}
		peer := begin(s.Peer())
		wire, refusal := encode(peer, []byte(before), payload)
		if refusal != nil && string(wire) != before {
			return fmt.Errorf("AppendFrame of %q failed, but dst became %s", payload, show(wire))
		}
		if wire, err = encode(peer, wire, behind); err != nil {
			return fmt.Errorf("AppendFrame of %q (error %v), and then refuses sample 0: %w", payload, refusal, err)
		}
		d := newDriver(s.New(), true)
		if err := d.feed(wire[len(before):]); err != nil || len(d.data) > 0 {
			return fmt.Errorf("the frame %q and one after it: error %v, and %d bytes are left over", payload, err, len(d.data))
		}
		want := [][]byte{payload, behind}
		if refusal != nil {
			want = want[1:]
		}
		if len(d.frames) == len(want) && len(d.frames[0]) == len(want[0]) {
			want[0] = d.frames[0] // its header, if it has one, is the codec's to write
		}
		if err := s.same(d.frames, want); err != nil {
			return fmt.Errorf("the frame %q (error %v) and sample 0 after it: %w", payload, refusal, err)
		}
	}
	return nil
}

// kind returns which error of package codec err is, true and nil for any other.
func kind(err error) (kind struct {
	failed   bool
	sentinel error
}) {
	kind.failed = err != nil
	for _, e := range []error{errBroken, codec.ErrTooLong, codec.ErrMalformed} {
		if errors.Is(err, e) {
			kind.sentinel = e
		}
	}
	return kind
}

// interleaved wants two connections that share what New returned not to notice each other.
func interleaved(s *Suite) error {
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	shared := s.New()
	a, b := newDriver(shared, false), newDriver(shared, true)
	rnd := random()
	// b is one piece behind.
	var behind []byte
	for _, piece := range cut(wire, len(wire)/100+3, rnd) {
		if err := errors.Join(a.feed(piece), b.feed(behind)); err != nil {
			return fmt.Errorf("two connections: %w", err)
		}
		behind = piece
	}
	if err := b.feed(behind); err != nil {
		return fmt.Errorf("two connections: %w", err)
	}
	return errors.Join(s.same(a.frames, s.Samples), s.same(b.frames, s.Samples))
}

// concurrent does the same on several goroutines, for the race detector.
func concurrent(s *Suite) error {
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	shared := s.New()
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			d := newDriver(shared, true)
			pieces := cut(wire, len(wire)/10+1, random())
			if errs[i] = d.feed(pieces...); errs[i] == nil {
				errs[i] = s.same(d.frames, s.Samples)
			}
			if _, err := encode(d.codec, nil, s.Samples[0]); err != nil {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
