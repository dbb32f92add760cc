package codec

import (
	"bytes"
	"fmt"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Delimiter is the codec of frames that end in a fixed byte or sequence of bytes.
//
//	Delimiter{Delim: "\r\n"}
//
//	on the wire                 frames
//	PING\r\n\r\nPO              "PING" "", and "PO" waits for its end
//	a\nb\r\n                    "a\nb"
//
// A frame is what stands before the delimiter. The first occurrence counts, also where occurrences
// overlap.
type Delimiter struct {
	// Delim ends a frame. It must not be empty.
	Delim string
	// Max is the longest frame in bytes, received or sent, its delimiter not counted. 0 means
	// DefaultMax.
	Max int
}

// Validate implements Validator.
func (c Delimiter) Validate() error {
	if c.Delim == "" {
		return fmt.Errorf("%w: Delimiter.Delim is empty", ErrConfig)
	}
	return length.ValidateMax("Delimiter", c.Max)
}

// Decode finds the first frame. It fails with ErrTooLong as soon as more than Max bytes have come
// that cannot be the start of a delimiter, whether or not a delimiter follows.
func (c Delimiter) Decode(data []byte) (advance int, frame []byte, err error) {
	return c.DecodeFrom(data, 0)
}

// DecodeFrom implements Resumer.
func (c Delimiter) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	if c.Delim == "" || c.Max < 0 {
		return 0, nil, c.Validate()
	}
	// A delimiter that was not whole last time may have begun in the last bytes seen.
	from := max(0, seen-len(c.Delim)+1)
	i := bytes.Index(data[from:], []byte(c.Delim))
	end := from + i
	if i < 0 && len(data) > limit(c.Max) { // find the first place where one may have begun
		for end = max(0, len(data)-len(c.Delim)+1); !bytes.HasPrefix([]byte(c.Delim), data[end:]); end++ {
		}
	}
	if end > limit(c.Max) {
		return 0, nil, length.TooLong(uint64(end), limit(c.Max))
	}
	if i < 0 {
		return 0, nil, nil
	}
	return end + len(c.Delim), data[:end:end], nil
}

// AppendFrame appends the frame and its delimiter. A frame is ErrMalformed if the peer would find a
// delimiter in it, or one that its last bytes and the delimiter's first make together.
func (c Delimiter) AppendFrame(dst, frame []byte) ([]byte, error) {
	switch {
	case c.Delim == "" || c.Max < 0:
		return dst, c.Validate()
	case len(frame) > limit(c.Max):
		return dst, length.TooLong(uint64(len(frame)), limit(c.Max))
	}
	start := len(dst)
	dst = append(append(dst, frame...), c.Delim...)
	if bytes.Index(dst[start:], []byte(c.Delim)) != len(frame) {
		return dst[:start], fmt.Errorf("%w: a frame that contains the delimiter %q", ErrMalformed, c.Delim)
	}
	return dst, nil
}

// FrameSize implements Sizer, with a bound.
func (c Delimiter) FrameSize([]byte) (size int, exact bool) {
	return wireLimit(c.Max, len(c.Delim)), false
}
