package length

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Reader is a Layout made ready for the hot path: checked, and with all that is the same for each
// frame worked out. A frame of n bytes on the wire has n - base in its field.
type Reader struct {
	Given any // the codec.Length

	offset int // bytes before the field
	head   int // bytes up to and including the field
	strip  int // bytes not delivered
	base   int // may be negative

	// The field may say least to least+span: frames no shorter than head and strip, and no longer
	// than maxFrame and the field's width allow.
	least, span uint64
	maxFrame    int

	little bool
	word   bool // the field is 4 bytes, big-endian, as it mostly is
	bare   bool // and it is all there is besides the payload, which is what is delivered
}

// Plain returns 0, or how many bytes of payload a frame has fewer than, if frames are a 4-byte
// big-endian length and the payload, which is what is delivered.
func (l *Reader) Plain() int {
	if l.bare && l.base == l.head && l.least == 0 {
		return int(min(l.span+1, math.MaxInt32))
	}
	return 0
}

// Decode is codec.Length.Decode.
func (l *Reader) Decode(data []byte) (advance int, frame []byte, err error) {
	if len(data) < l.head {
		return 0, nil, nil
	}
	v := l.field(data)
	if v-l.least > l.span {
		return 0, nil, l.refuse(v)
	}
	size := int(v) + l.base
	if len(data) < size {
		return 0, nil, nil
	}
	return size, data[l.strip:size:size], nil
}

// FrameSize is codec.Length.FrameSize.
func (l *Reader) FrameSize(data []byte) (size int, exact bool) {
	if len(data) >= l.head {
		if v := l.field(data); v-l.least <= l.span {
			return int(v) + l.base, true
		}
	}
	return max(l.head, int(min(uint64(math.MaxInt), uint64(int64(l.least+l.span)+int64(l.base))))), false
}

// AppendFrame is codec.Length.AppendFrame.
func (l *Reader) AppendFrame(dst, frame []byte) ([]byte, error) {
	// Of a frame too short to have a field, v is negative, which is far above least+span.
	v := uint64(int64(len(frame)) + int64(l.strip) - int64(l.base))
	if v-l.least > l.span {
		return dst, l.refuseFrame(len(frame))
	}
	if l.bare {
		return append(binary.BigEndian.AppendUint32(dst, uint32(v)), frame...), nil
	}
	start := len(dst)
	dst = append(appendZeros(dst, l.strip), frame...)
	l.putField(dst[start:], v)
	return dst, nil
}

// field reads the length field of the frame at the start of data.
func (l *Reader) field(data []byte) uint64 {
	if l.word {
		return uint64(binary.BigEndian.Uint32(data[l.offset:]))
	}
	return l.anyField(data[l.offset:l.head])
}

func (l *Reader) anyField(b []byte) (v uint64) {
	if l.little {
		for i := len(b) - 1; i >= 0; i-- {
			v = v<<8 | uint64(b[i])
		}
		return v
	}
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// putField writes v into the length field of frame.
func (l *Reader) putField(frame []byte, v uint64) {
	b := frame[l.offset:l.head]
	if l.little {
		for i := range b {
			b[i] = byte(v)
			v >>= 8
		}
		return
	}
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
}

// refuse says what is wrong with a field that says v.
//
//go:noinline
func (l *Reader) refuse(v uint64) error {
	if v < l.least {
		return fmt.Errorf("%w: the length field says %d, it must say at least %d", ErrMalformed, v, l.least)
	}
	return fmt.Errorf("%w: the length field says %d, it may say at most %d (Max is %d)",
		ErrTooLong, v, l.least+l.span, l.maxFrame)
}

// refuseFrame says why a frame of n bytes cannot be sent.
//
//go:noinline
func (l *Reader) refuseFrame(n int) error {
	shortest := int64(l.least) + int64(l.base) - int64(l.strip)
	if int64(n) < shortest {
		return fmt.Errorf("%w: %d bytes, the shortest frame has %d", ErrMalformed, n, shortest)
	}
	return TooLong(uint64(n), int(shortest+int64(l.span)))
}

// appendZeros appends n zeros, where n is nearly always the length of a short header.
func appendZeros(dst []byte, n int) []byte {
	for ; n >= 8; n -= 8 {
		dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	for ; n > 0; n-- {
		dst = append(dst, 0)
	}
	return dst
}
