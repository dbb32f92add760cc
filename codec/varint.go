package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Varint is the codec of frames after their length as an unsigned varint, as Protocol Buffers
// delimit messages: seven bits per byte, the least significant first, the top bit set in all bytes
// but the last.
//
//	on the wire                         frames
//	05 h e l l o 00 AC 02 a b c         "hello" "", and 3 bytes of 300 wait for the rest
//
// A length may be written with more bytes than it needs, up to the ten that 64 bits take;
// AppendFrame writes the fewest.
type Varint struct {
	// Max is the longest frame in bytes, received or sent, its length field not counted. 0 means
	// DefaultMax.
	Max int
}

// Validate implements Validator.
func (c Varint) Validate() error { return length.ValidateMax("Varint", c.Max) }

// Decode finds the first frame. ErrTooLong and ErrMalformed (a length of more than 64 bits) come as
// soon as the length is there.
func (c Varint) Decode(data []byte) (advance int, frame []byte, err error) {
	head, n, err := c.header(data)
	if err != nil || head == 0 || len(data)-head < n {
		return 0, nil, err
	}
	end := head + n
	return end, data[head:end:end], nil
}

// FrameSize implements Sizer.
func (c Varint) FrameSize(data []byte) (size int, exact bool) {
	head, n, err := c.header(data)
	if size = head + n; err == nil && head > 0 && size > 0 { // not if the sum overflowed
		return size, true
	}
	return wireLimit(c.Max, binary.MaxVarintLen64), false
}

// header returns the lengths of the length field, 0 if not all of it is there, and of the frame
// after it.
func (c Varint) header(data []byte) (head, n int, err error) {
	v, head := binary.Uvarint(data)
	switch {
	case c.Max < 0:
		return 0, 0, c.Validate()
	case head < 0 || head == 0 && len(data) >= binary.MaxVarintLen64:
		return 0, 0, fmt.Errorf("%w: a varint of more than 64 bits", ErrMalformed)
	case head == 0:
		return 0, 0, nil
	case v > uint64(limit(c.Max)):
		return 0, 0, length.TooLong(v, limit(c.Max))
	}
	return head, int(v), nil
}

// AppendFrame appends the length and frame.
func (c Varint) AppendFrame(dst, frame []byte) ([]byte, error) {
	switch {
	case c.Max < 0:
		return dst, c.Validate()
	case len(frame) > limit(c.Max):
		return dst, length.TooLong(uint64(len(frame)), limit(c.Max))
	}
	return append(binary.AppendUvarint(dst, uint64(len(frame))), frame...), nil
}
