// Package length reads and writes frames with a length field. It is what codec.Length does, in the
// form that a server uses for each message: package framing knows it as well as package codec.
package length

import (
	"errors"
	"fmt"
	"math"
)

const (
	// DefaultMax is the longest frame, in bytes, if Layout.Max is zero.
	DefaultMax = 64 << 10

	// StripNone as Layout.Strip delivers frames whole.
	StripNone = -1

	// MaxSetting bounds Layout.Offset, Adjust and Strip, far above any real protocol and low enough
	// that their sums fit an int of 32 bits.
	MaxSetting = 1 << 28
)

// The errors of package codec, which has the same values.
var (
	ErrTooLong   = errors.New("codec: frame too long")
	ErrMalformed = errors.New("codec: malformed frame")
	ErrConfig    = errors.New("codec: bad configuration")
)

// A Layout says where the length field is and what it counts. The fields are those of codec.Length,
// to which it can be converted, and are explained there.
type Layout struct {
	Offset       int
	Size         int
	LittleEndian bool
	Adjust       int
	Strip        int
	Inclusive    bool
	Max          int
}

// Reader checks the fields and works out what they come to. The error wraps ErrConfig.
func (c *Layout) Reader() (l Reader, err error) {
	width := c.Size
	switch c.Size {
	case 0:
		width = 4
	case 1, 2, 3, 4, 8:
	default:
		return l, fmt.Errorf("%w: Length.Size %d is not 1, 2, 3, 4 or 8 (0 means 4)", ErrConfig, c.Size)
	}
	if uint(c.Offset) > MaxSetting || uint(c.Adjust+MaxSetting) > 2*MaxSetting ||
		uint(c.Strip-StripNone) > MaxSetting-StripNone || c.Max < 0 {
		return l, c.outOfRange()
	}
	return c.reader(width)
}

// outOfRange names the field that is.
func (c *Layout) outOfRange() error {
	for _, f := range [...]struct {
		name            string
		value, min, max int
	}{
		{"Offset", c.Offset, 0, MaxSetting},
		{"Adjust", c.Adjust, -MaxSetting, MaxSetting},
		{"Strip", c.Strip, StripNone, MaxSetting},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: Length.%s %d is not between %d and %d", ErrConfig, f.name, f.value, f.min, f.max)
		}
	}
	return ValidateMax("Length", c.Max)
}

// reader is Reader for fields that are valid each for itself.
func (c *Layout) reader(width int) (l Reader, err error) {
	l = Reader{offset: c.Offset, head: c.Offset + width, strip: c.Strip, little: c.LittleEndian, maxFrame: Limit(c.Max)}
	l.word = width == 4 && !c.LittleEndian
	switch c.Strip {
	case 0:
		l.strip = l.head
	case StripNone:
		l.strip = 0
	}
	l.bare = l.word && l.head == 4 && l.strip == 4
	l.base = l.head + c.Adjust
	if c.Inclusive {
		l.base -= width
	}
	// In 64 bits, where none of these sums can overflow.
	shortest := int64(max(l.head, l.strip))
	longest := min(min(int64(l.maxFrame), math.MaxInt64/2)+int64(l.strip), math.MaxInt)
	least, most := max(0, shortest-int64(l.base)), longest-int64(l.base)
	if width < 8 {
		most = min(most, 1<<(8*width)-1)
	}
	if least > most {
		return l, fmt.Errorf("%w: Length.Offset %d, Size %d, Adjust %d, Strip %d and Max %d together allow no frame at all",
			ErrConfig, c.Offset, c.Size, c.Adjust, c.Strip, c.Max)
	}
	l.least, l.span = uint64(least), uint64(most-least)
	return l, nil
}

// Limit returns the number of bytes that a Max field stands for.
func Limit(max int) int {
	if max == 0 {
		return DefaultMax
	}
	return max
}

// ValidateMax returns an error if the Max field of a codec is negative.
func ValidateMax(codec string, max int) error {
	if max < 0 {
		return fmt.Errorf("%w: %s.Max %d is negative (0 means %d)", ErrConfig, codec, max, DefaultMax)
	}
	return nil
}

// TooLong stays out of line, and so do the other makers of errors, to keep the paths that succeed
// short.
//
//go:noinline
func TooLong(n uint64, max int) error {
	return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLong, n, max)
}
