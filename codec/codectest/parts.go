package codectest

import (
	"errors"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// unfinished asks c, if it is a codec.Assembler.
func unfinished(c codec.Codec) (size int, ok bool) {
	if a, is := c.(codec.Assembler); is {
		return a.Unfinished()
	}
	return 0, false
}

// held wants an answer of an Assembler that can be true, and the same one twice.
func (d *driver) held() error {
	size, ok := unfinished(d.codec)
	if size < 0 || !ok && size != 0 {
		return fmt.Errorf("%w: Unfinished returned %d, %t", errBroken, size, ok)
	}
	if again, still := unfinished(d.codec); again != size || still != ok {
		return fmt.Errorf("%w: Unfinished returned %d, %t, and then %d, %t", errBroken, size, ok, again, still)
	}
	return nil
}

// parts wants a message in parts to be held until it is whole, and the codec to say so.
func parts(s *Suite) error {
	if size, ok := unfinished(connection(s.New())); size != 0 || ok {
		return fmt.Errorf("of a new connection, Unfinished is %d, %t", size, ok)
	}
	if s.Parts == nil {
		return nil
	}
	for i, frame := range s.Samples {
		d := newDriver(s.New(), true)
		for range 2 { // the second message begins as the first one did
			if err := s.inParts(d, frame); err != nil {
				return fmt.Errorf("sample %d in parts: %w", i, err)
			}
		}
	}
	return nil
}

// inParts sends one frame.
func (s *Suite) inParts(d *driver, frame []byte) error {
	parts := s.Parts(frame)
	before := len(d.frames)
	for i, part := range parts {
		if err := d.feed(part); err != nil {
			return err
		}
		got := d.frames[before:]
		_, ok := unfinished(d.codec)
		switch last := i == len(parts)-1; {
		case last && len(d.data) > 0:
			return fmt.Errorf("%d bytes are left over", len(d.data))
		case last && ok:
			return errors.New("after the last part, Unfinished is true")
		case last:
			return s.same(got, [][]byte{frame})
		case len(got) > 0:
			return fmt.Errorf("the frame %s after %d of %d parts", show(got[0]), i+1, len(parts))
		case len(d.data) == 0 && !ok:
			return fmt.Errorf("it took %d of %d parts, but Unfinished, if there is one, is false", i+1, len(parts))
		}
	}
	return nil
}

// partsFlood wants a message of ever more parts to be refused at the limit: what an Assembler holds
// is memory as well.
func partsFlood(s *Suite) error {
	if s.Parts == nil {
		return nil
	}
	limit, err := s.maxFrame()
	if err != nil {
		return err
	}
	frame := s.Fill(limit)
	if frame == nil {
		return nil
	}
	parts := s.Parts(frame)
	if len(parts) == 0 {
		return nil
	}
	d := newDriver(s.New(), true)
	if err := d.feed(parts[0]); err != nil {
		return err
	}
	most := 2*limit + 64<<10 // some may count what is around the parts
	for fed := 0; fed <= 4*most+len(parts[1]); fed += max(1, len(parts[1])) {
		err := d.feed(parts[1])
		if errors.Is(err, codec.ErrTooLong) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("too many parts: error %w, want codec.ErrTooLong", err)
		}
		if size, _ := unfinished(d.codec); size+len(d.data) > most {
			return fmt.Errorf("it holds %d bytes of a message in parts, although its limit is %d", size+len(d.data), limit)
		}
	}
	return fmt.Errorf("it takes parts of a message without end, although its limit is %d", limit)
}
