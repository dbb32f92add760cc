package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// StripNone as Length.Strip delivers frames whole, header included.
const StripNone = -1

// maxSetting bounds what a Length's Offset, Adjust and Strip may be, far above any real protocol and low enough
// that their sums fit an int of 32 bits.
const maxSetting = 1 << 28

// Length is the codec of frames that say in a length field how long they are. The zero Length is a
// 4-byte big-endian length of the payload that follows, and delivers the payload:
//
//	on the wire                                   frames
//	00 00 00 05 h e l l o 00 00 00 00 00 00 01    "hello" "", and 3 bytes wait for the rest
//
// In general a frame is a prefix of Offset bytes, a field of Size bytes, and the rest:
//
//	|<- Offset ->|<- Size ->|<------- value of the field + Adjust ------->|
//	+------------+----------+---------------------------------------------+
//	|   prefix   |  length  |                    rest                     |
//	+------------+----------+---------------------------------------------+
//	|<----- Strip ----->|<------- the frame that is delivered ----------->|
//
// Some protocols, as field settings, and the frame of the payload "HELLO" (bytes in hex, letters as they are):
//
//	2-byte length of the payload: 00 05 HELLO
//	    Length{Size: 2}                               delivers HELLO
//	the same, delivered with its header
//	    Length{Size: 2, Strip: StripNone}             delivers 00 05 HELLO
//	the field counts itself too: 00 07 HELLO
//	    Length{Size: 2, Inclusive: true}              delivers HELLO
//	a 2-byte magic number first: CA FE 00 05 HELLO
//	    Length{Offset: 2, Size: 2, Strip: StripNone}  delivers CA FE 00 05 HELLO
//	    Length{Offset: 2, Size: 2, Strip: 4}          delivers HELLO
//	the same, and the field counts the whole frame: CA FE 00 09 HELLO
//	    Length{Offset: 2, Size: 2, Adjust: -4, Strip: StripNone}
//	                                                  delivers CA FE 00 09 HELLO
//	a type byte behind the length, not counted by it: 00 05 07 HELLO
//	    Length{Size: 2, Adjust: 1}                    delivers 07 HELLO
//	    Length{Size: 2, Adjust: 1, Strip: 3}          delivers HELLO
//
// AppendFrame takes what Decode delivers: the frame without its first Strip bytes. It computes the field and
// writes it over whatever the frame has in its place, and it writes zeros for all other bytes that Decode
// strips. So a sender who has something to say in the prefix, or behind the field, must not have it stripped.
type Length struct {
	// Offset is the number of bytes before the length field.
	Offset int
	// Size is the length of the field in bytes: 1, 2, 3, 4 or 8. 0 means 4.
	Size int
	// LittleEndian says that the field's least significant byte comes first.
	LittleEndian bool
	// Adjust is added to the field's value to get the number of bytes behind the field. It may be negative.
	Adjust int
	// Strip is the number of bytes to drop from the start of each frame before it is delivered. 0 means the header,
	// Offset+Size bytes; StripNone means none.
	Strip int
	// Inclusive says that the field's value counts the field itself. It is the same as
	// an Adjust that is lower by Size.
	Inclusive bool
	// Max is the longest frame that is delivered, in bytes; those that are stripped do not count. 0 means
	// DefaultMax. A longer one is refused as soon as its header is there.
	Max int
}

// Validate implements Validator.
func (c Length) Validate() error {
	switch {
	case c.Offset < 0 || c.Offset > maxSetting:
		return fmt.Errorf("%w: Length.Offset %d is not between 0 and %d", ErrConfig, c.Offset, maxSetting)
	case c.width() == 0:
		return fmt.Errorf("%w: Length.Size %d is not 1, 2, 3, 4 or 8 (0 means 4)", ErrConfig, c.Size)
	case c.Adjust < -maxSetting || c.Adjust > maxSetting:
		return fmt.Errorf("%w: Length.Adjust %d is not between %d and %d", ErrConfig, c.Adjust, -maxSetting, maxSetting)
	case c.Strip < StripNone || c.Strip > maxSetting:
		return fmt.Errorf("%w: Length.Strip %d is not between %d and %d", ErrConfig, c.Strip, StripNone, maxSetting)
	}
	return validateMax("Length", c.Max)
}

// width returns the length of the field in bytes, or 0 if Size is not a possible one.
func (c Length) width() int {
	switch c.Size {
	case 0:
		return 4
	case 1, 2, 3, 4, 8:
		return c.Size
	}
	return 0
}

// geometry is a Length with its zeros replaced by what they mean.
type geometry struct {
	head  int // bytes up to and including the field
	strip int // bytes not delivered
	base  int // frame length on the wire when the field says 0; may be negative
	max   int // longest frame on the wire, less strip
}

func (c Length) geometry() (g geometry, err error) {
	if err := c.Validate(); err != nil {
		return g, err
	}
	width := c.width()
	g.head = c.Offset + width
	g.base = g.head + c.Adjust
	if c.Inclusive {
		g.base -= width
	}
	switch c.Strip {
	case 0:
		g.strip = g.head
	case StripNone:
	default:
		g.strip = c.Strip
	}
	g.max = limit(c.Max)
	return g, nil
}

// Decode finds the first frame. ErrTooLong and ErrMalformed (a field that says less than its own
// header, or than Strip) come as soon as the header is there.
func (c Length) Decode(data []byte) (advance int, frame []byte, err error) {
	g, err := c.geometry()
	if err != nil || len(data) < g.head {
		return 0, nil, err
	}
	size, err := g.size(c.field(data[c.Offset:]))
	if err != nil || len(data) < size {
		return 0, nil, err
	}
	return size, data[g.strip:size:size], nil
}

// FrameSize implements Sizer.
func (c Length) FrameSize(data []byte) (size int, ok bool) {
	g, err := c.geometry()
	if err != nil || len(data) < g.head {
		return 0, false
	}
	size, err = g.size(c.field(data[c.Offset:]))
	return size, err == nil
}

// field reads the length field at the start of b.
func (c Length) field(b []byte) uint64 {
	if c.LittleEndian {
		switch c.Size {
		case 1:
			return uint64(b[0])
		case 2:
			return uint64(binary.LittleEndian.Uint16(b))
		case 3:
			return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
		case 8:
			return binary.LittleEndian.Uint64(b)
		}
		return uint64(binary.LittleEndian.Uint32(b))
	}
	switch c.Size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 3:
		return uint64(b[2]) | uint64(b[1])<<8 | uint64(b[0])<<16
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return uint64(binary.BigEndian.Uint32(b))
}

// size returns the length on the wire of a frame whose field says v.
func (g geometry) size(v uint64) (int, error) {
	if v > math.MaxInt64/2 {
		return 0, tooLong(v, g.max)
	}
	n := int64(v) + int64(g.base)
	switch payload := n - int64(g.strip); {
	case n < int64(g.head) || payload < 0:
		return 0, g.malformed(n)
	case payload > int64(g.max) || n > math.MaxInt:
		return 0, tooLong(uint64(payload), g.max)
	}
	return int(n), nil
}

//go:noinline
func (g geometry) malformed(n int64) error {
	return fmt.Errorf("%w: the length field makes the frame %d bytes long, its header is %d and %d are stripped",
		ErrMalformed, n, g.head, g.strip)
}

// AppendFrame appends a frame that Decode will deliver as this one. It fails with ErrTooLong if frame is
// longer than Max or than the field can say, and with ErrMalformed if it is shorter than the part of the header that
// is not stripped, or than Adjust allows.
func (c Length) AppendFrame(dst, frame []byte) ([]byte, error) {
	g, err := c.geometry()
	if err != nil {
		return dst, err
	}
	if len(frame) > g.max {
		return dst, tooLong(uint64(len(frame)), g.max)
	}
	n := int64(g.strip) + int64(len(frame))
	v := n - int64(g.base)
	switch width := c.width(); {
	case n < int64(g.head) || v < 0:
		return dst, g.malformed(n)
	case width < 8 && v>>(8*width) != 0:
		return dst, tooLong(uint64(v), 1<<(8*width)-1)
	}
	start := len(dst)
	dst = append(appendZeros(dst, g.strip), frame...)
	c.putField(dst[start+c.Offset:], uint64(v))
	return dst, nil
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

// putField writes v as the length field at the start of b.
func (c Length) putField(b []byte, v uint64) {
	for i, width := 0, c.width(); i < width; i++ {
		shift := 8 * i
		if !c.LittleEndian {
			shift = 8 * (width - 1 - i)
		}
		b[i] = byte(v >> shift)
	}
}
