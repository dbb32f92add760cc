package codec

import (
	"fmt"
	"strings"
	"unsafe"

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
	i := c.index(data[from:])
	end := from + i
	if i < 0 {
		end = len(data) - len(c.Delim) + 1 // the first place where one may still begin
	}
	if end > limit(c.Max) {
		return 0, nil, length.TooLong(uint64(end), limit(c.Max))
	}
	if i < 0 {
		return 0, nil, nil
	}
	return end + len(c.Delim), data[:end:end], nil
}

// index finds the delimiter in b. The string made of b lives for this search only: bytes.Index
// would want Delim converted for each.
func (c Delimiter) index(b []byte) int {
	return strings.Index(unsafe.String(unsafe.SliceData(b), len(b)), c.Delim)
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
	if c.index(dst[start:]) != len(frame) {
		return dst[:start], fmt.Errorf("%w: a frame that contains the delimiter %q", ErrMalformed, c.Delim)
	}
	return dst, nil
}

// FrameLimit implements Limiter.
func (c Delimiter) FrameLimit() int { return wireLimit(c.Max, len(c.Delim)) }
