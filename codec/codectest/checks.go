package codectest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// byteByByteMost bounds the bytes that are fed one at a time, since each costs a copy of all before
// it.
const byteByByteMost = 8 << 10

func configuration(s *Suite) error {
	if len(s.Samples) == 0 {
		return errors.New("no samples, and Fill makes no frame that AppendFrame takes")
	}
	_, err := framing.Compile(s.New())
	return err
}

// before stands in dst for what other calls have appended.
const before = "what was there"

// greeting wants the first words after what is in dst, or an error and no trace there, and the
// handshake to be over once a frame has come.
func greeting(s *Suite) error {
	d := &driver{codec: connection(s.New()), resume: true}
	o, ok := d.codec.(codec.Opener)
	if !ok {
		return nil
	}
	got, _, err := o.Open([]byte(before), remote())
	if !bytes.HasPrefix(got, []byte(before)) || err != nil && len(got) > len(before) {
		return fmt.Errorf("method Open (error %v) has made %s of what was in dst", err, show(got))
	}
	if err != nil {
		return nil
	}
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	_ = d.feed(wire) // the other checks judge that
	if err := o.Opening(); err != nil && len(d.frames) > 0 {
		return fmt.Errorf("after %d frames, Opening still returns %w, want nil", len(d.frames), err)
	}
	return nil
}

// farewell wants the last words after what is in dst, whenever and for whatever reason a connection
// closes. The reason is nil if the server has called Conn.Close.
func farewell(s *Suite) error {
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	inputs := append([][]byte{nil, wire, wire[:len(wire)-min(len(wire), 1)]}, s.Malformed...)
	for _, input := range inputs {
		for _, reason := range []error{nil, io.EOF, codec.ErrMalformed} {
			d := &driver{codec: connection(s.New()), resume: true}
			f, ok := d.codec.(codec.Farewell)
			if !ok || open(d.codec) != nil {
				return nil
			}
			_ = d.feed(input)
			if got := f.AppendFarewell([]byte(before), reason); !bytes.HasPrefix(got, []byte(before)) {
				return fmt.Errorf("AppendFarewell(%q, %v) after %d frames returns %s, which does not begin with dst",
					before, reason, len(d.frames), show(got))
			}
		}
	}
	return nil
}

// expect feeds pieces and wants exactly these frames, with nothing left over, by Decode and by
// DecodeFrom.
func (s *Suite) expect(want [][]byte, pieces ...[]byte) error {
	for _, resume := range []bool{false, true} {
		d := newDriver(s.New(), resume)
		if err := d.feed(pieces...); err != nil {
			return fmt.Errorf("after %d frames: %w", len(d.frames), err)
		}
		if err := s.same(d.frames, want); err != nil {
			return err
		}
		if len(d.data) > 0 {
			return fmt.Errorf("%d bytes are left over after the last frame", len(d.data))
		}
		if size, ok := unfinished(d.codec); ok {
			return fmt.Errorf("by Unfinished a message of %d bytes is unfinished after the last frame", size)
		}
	}
	return nil
}

func alone(s *Suite) error {
	for i, frame := range s.Samples {
		wire, err := s.wire(frame)
		if err != nil {
			return err
		}
		if err := s.expect([][]byte{frame}, wire); err != nil {
			return fmt.Errorf("sample %d alone: %w", i, err)
		}
	}
	return nil
}

func together(s *Suite) error {
	samples := slices.Concat(s.Samples, s.Samples, s.Samples)
	wire, err := s.wire(samples...)
	if err != nil {
		return err
	}
	return s.expect(samples, wire)
}

func byteByByte(s *Suite) error {
	for i, frame := range s.Samples {
		wire, err := s.wire(frame, frame)
		if err != nil {
			return err
		}
		if len(wire) > byteByByteMost {
			continue
		}
		if err := s.expect([][]byte{frame, frame}, slices.Collect(slices.Chunk(wire, 1))...); err != nil {
			return fmt.Errorf("sample %d twice, byte by byte: %w", i, err)
		}
	}
	return nil
}

func randomPieces(s *Suite) error {
	rnd := random()
	samples := slices.Concat(s.Samples, s.Samples)
	for range 50 {
		rnd.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		wire, err := s.wire(samples...)
		if err != nil {
			return err
		}
		pieces := cut(wire, max(1, len(wire)/(1+rnd.IntN(20))), rnd)
		if err := s.expect(samples, pieces...); err != nil {
			return fmt.Errorf("in %d pieces: %w", len(pieces), err)
		}
	}
	return nil
}

func throughDecoder(s *Suite) error {
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	rnd := random()
	for _, n := range []int{1, 2, 3, 7, 64, 1000, len(wire)} {
		d := newDecoder(s.New())
		got, _, err := decodeAll(d, cut(wire, max(1, n), rnd)...)
		if err == nil {
			err = s.same(got, s.Samples)
		}
		if err == nil && d.Buffered() > 0 {
			err = fmt.Errorf("%d bytes are left over", d.Buffered())
		}
		if err != nil {
			return fmt.Errorf("through a Decoder, in pieces of up to %d bytes: %w", n, err)
		}
	}
	return nil
}

// resume wants DecodeFrom to answer as Decode does, however much was seen before.
func resume(s *Suite) error {
	if _, ok := connection(s.New()).(codec.Resumer); !ok {
		return nil
	}
	for i, frame := range s.Samples {
		wire, err := s.wire(frame)
		if err != nil {
			return err
		}
		for seen := range min(len(wire), byteByByteMost) {
			d := newDriver(s.New(), false)
			if err := d.feed(wire[:seen]); err != nil || d.seen != seen {
				break // not "less than a frame", so there is nothing to resume
			}
			d.resume = true
			if err := cmp.Or(d.feed(wire[seen:]), s.same(d.frames, [][]byte{frame})); err != nil || len(d.data) > 0 {
				return fmt.Errorf("sample %d: DecodeFrom(%d bytes, seen %d): error %v, %d bytes are left over, want one frame, %s",
					i, len(wire), seen, err, len(d.data), show(frame))
			}
		}
	}
	return s.rescans()
}

// rescans wants DecodeFrom not to search what was searched before, which makes a long frame in
// small pieces cost its length squared. To show it, the middle of what was seen is exchanged for
// whole frames: a codec that looks there again takes them for its own.
func (s *Suite) rescans() error {
	const margin = 64 // a header at the start, and the beginning of a delimiter at the end
	var wire []byte
	for n := 4096; len(wire) < 8*margin; n /= 2 {
		if n < 4*margin {
			return nil // frames are short
		}
		if frame := s.Fill(n); frame != nil && s.accepts(frame) == nil {
			var err error
			if wire, err = s.wire(frame); err != nil {
				return err
			}
		}
	}
	seen := len(wire) * 3 / 4
	for i, sample := range s.Samples {
		other, err := s.wire(sample)
		if err != nil {
			return err
		}
		c := begin(s.New())
		if n, _, err := c.Decode(bytes.Clone(wire[:seen])); n != 0 || err != nil {
			return nil // it delivers parts
		}
		data := bytes.Clone(wire[:len(wire)-1])
		for at := margin; at < seen-margin; at += len(other) {
			copy(data[at:seen-margin], other)
		}
		if n, got, err := c.(codec.Resumer).DecodeFrom(data, seen); n != 0 || err != nil {
			return fmt.Errorf("DecodeFrom(%d bytes, seen %d) searches the seen bytes again: where they hold sample %d it returns %d, %s, %v, want 0, nil, nil",
				len(data), seen, i, n, show(got), err)
		}
	}
	return nil
}

// frameSize wants a Sizer to tell the truth as soon as it says anything.
func frameSize(s *Suite) error {
	if _, ok := connection(s.New()).(codec.Sizer); !ok {
		return nil
	}
	for i, frame := range s.Samples {
		wire, err := s.wire(frame)
		if err != nil {
			return err
		}
		for n := 1; n <= min(len(wire), byteByByteMost); n++ {
			size, exact := begin(s.New()).(codec.Sizer).FrameSize(wire[:n])
			if exact && size != len(wire) || size > 0 && size < len(wire) {
				return fmt.Errorf("sample %d: FrameSize of the first %d bytes is %d, %t, of %d", i, n, size, exact, len(wire))
			}
		}
	}
	return nil
}

// appendFrame wants what is in dst to stay, with and without room after it, and frame not to
// change, nor what comes after it in memory.
func appendFrame(s *Suite) error {
	const marks = "what comes next"
	for i, frame := range s.Samples {
		for _, room := range []int{0, 2*len(frame) + 100} {
			dst := append(make([]byte, 0, len(before)+room), before...)
			behind := append(bytes.Clone(frame), marks...)
			given := behind[:len(frame)]
			got, err := begin(s.Peer()).AppendFrame(dst, given)
			switch {
			case err != nil:
				return fmt.Errorf("AppendFrame refuses sample %d, %s: %w", i, show(frame), err)
			case !bytes.Equal(given, frame):
				return fmt.Errorf("AppendFrame changed sample %d", i)
			case string(behind[len(frame):]) != marks:
				return fmt.Errorf("AppendFrame wrote after the end of sample %d: append to dst, and never to frame", i)
			case !bytes.HasPrefix(got, []byte(before)):
				return fmt.Errorf("AppendFrame dropped or changed what was in dst: %s", show(got))
			}
			if err := s.expect([][]byte{frame}, got[len(before):]); err != nil {
				return fmt.Errorf("sample %d, appended: %w", i, err)
			}
		}
	}
	return nil
}
