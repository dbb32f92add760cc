package codec

import (
	"fmt"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Fixed is the codec of frames that are all Size bytes long, which is its only limit.
//
//	Fixed{Size: 3}
//
//	on the wire     frames
//	abcdefgh        "abc" "def", and "gh" waits for the rest
type Fixed struct {
	// Size is the length of every frame in bytes. It must be set.
	Size int
}

// Validate implements Validator.
func (c Fixed) Validate() error {
	if c.Size <= 0 {
		return fmt.Errorf("%w: Fixed.Size %d is not positive", ErrConfig, c.Size)
	}
	return nil
}

// Decode returns the first Size bytes.
func (c Fixed) Decode(data []byte) (advance int, frame []byte, err error) {
	if c.Size <= 0 {
		return 0, nil, c.Validate()
	}
	if len(data) < c.Size {
		return 0, nil, nil
	}
	return c.Size, data[:c.Size:c.Size], nil
}

// FrameSize implements Sizer.
func (c Fixed) FrameSize([]byte) (size int, exact bool) { return c.Size, c.Size > 0 }

// AppendFrame appends frame as it is. One longer than Size is ErrTooLong, a shorter one
// ErrMalformed.
func (c Fixed) AppendFrame(dst, frame []byte) ([]byte, error) {
	switch {
	case c.Size <= 0:
		return dst, c.Validate()
	case len(frame) > c.Size:
		return dst, length.TooLong(uint64(len(frame)), c.Size)
	case len(frame) < c.Size:
		return dst, fmt.Errorf("%w: %d bytes, every frame has %d", ErrMalformed, len(frame), c.Size)
	}
	return append(dst, frame...), nil
}
