package codec

import (
	"bytes"
	"fmt"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Lines is the codec of text lines that end in "\n" or "\r\n".
//
//	on the wire           frames
//	GET a\r\nGET b\nGE    "GET a" "GET b", and "GE" waits for its end
//	\n\r\n                "" ""
//	a\rb\r\r\n            "a\rb\r"
//
// A frame is the line without its end: without the "\n" and the one "\r" that may stand before it.
// Any other byte, "\r" and zero included, is content.
//
// AppendFrame ends lines in "\n", or in "\r\n" when the line's own last byte is "\r", which the
// peer would otherwise drop. Use Delimiter{Delim: "\r\n"} for a protocol that wants "\r\n" always.
type Lines struct {
	// Max is the longest line in bytes, received or sent, its end not counted. 0 means DefaultMax.
	Max int
}

// Validate implements Validator.
func (c Lines) Validate() error { return length.ValidateMax("Lines", c.Max) }

// Decode finds the first line. It fails with ErrTooLong as soon as more than Max bytes have come
// that are not a line's end, whether or not an end follows.
func (c Lines) Decode(data []byte) (advance int, frame []byte, err error) {
	return c.DecodeFrom(data, 0)
}

// DecodeFrom implements Resumer.
func (c Lines) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	if c.Max < 0 {
		return 0, nil, c.Validate()
	}
	i := bytes.IndexByte(data[seen:], '\n')
	if i < 0 {
		return 0, nil, c.checkOpen(data)
	}
	end := seen + i
	advance = end + 1
	if end > 0 && data[end-1] == '\r' {
		end--
	}
	if end > limit(c.Max) {
		return 0, nil, length.TooLong(uint64(end), limit(c.Max))
	}
	return advance, data[:end:end], nil
}

// checkOpen says whether a line whose end has not come can still be short enough: a last "\r" may
// turn out to belong to the end.
func (c Lines) checkOpen(data []byte) error {
	n := len(data)
	if n > 0 && data[n-1] == '\r' {
		n--
	}
	if n > limit(c.Max) {
		return length.TooLong(uint64(n), limit(c.Max))
	}
	return nil
}

// AppendFrame appends the line and its end. A line that contains "\n" is ErrMalformed: the
// peer would read it as two.
func (c Lines) AppendFrame(dst, frame []byte) ([]byte, error) {
	switch {
	case c.Max < 0:
		return dst, c.Validate()
	case len(frame) > limit(c.Max):
		return dst, length.TooLong(uint64(len(frame)), limit(c.Max))
	case bytes.IndexByte(frame, '\n') >= 0:
		return dst, fmt.Errorf("%w: a line that contains a newline", ErrMalformed)
	}
	dst = append(dst, frame...)
	if n := len(frame); n > 0 && frame[n-1] == '\r' {
		dst = append(dst, '\r')
	}
	return append(dst, '\n'), nil
}

// FrameLimit implements Limiter.
func (c Lines) FrameLimit() int { return wireLimit(c.Max, len("\r\n")) }
