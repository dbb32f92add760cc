package codec

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/length"
)

// Every setting that makes no sense is named by Validate and refused by everything else.
func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		codec Codec
		field string
	}{
		{Lines{Max: -1}, "Lines.Max"},
		{Lines{Max: math.MinInt}, "Lines.Max"},
		{Delimiter{}, "Delimiter.Delim"},
		{Delimiter{Delim: "x", Max: -1}, "Delimiter.Max"},
		{Fixed{}, "Fixed.Size"},
		{Fixed{Size: -1}, "Fixed.Size"},
		{Varint{Max: -1}, "Varint.Max"},
		{Length{Size: 5}, "Length.Size"},
		{Length{Size: -4}, "Length.Size"},
		{Length{Size: math.MaxInt}, "Length.Size"},
		{Length{Offset: -1}, "Length.Offset"},
		{Length{Offset: math.MaxInt}, "Length.Offset"},
		{Length{Adjust: math.MinInt}, "Length.Adjust"},
		{Length{Adjust: math.MaxInt}, "Length.Adjust"},
		{Length{Strip: -2}, "Length.Strip"},
		{Length{Strip: math.MaxInt}, "Length.Strip"},
		{Length{Max: -1}, "Length.Max"},
		{Length{Max: 3, Strip: StripNone}, "Max 3"},    // not even a header
		{Length{Size: 1, Adjust: -300}, "Adjust -300"}, // 255-300 bytes follow
		{Length{Adjust: 100, Max: 99}, "Adjust 100"},   // at least 100 bytes follow
		{Length{Size: 1, Strip: 1000}, "Strip 1000"},   // 256 bytes on the wire at most
		{Length{Inclusive: true, Size: 1, Adjust: length.MaxSetting, Max: 1000}, "Max 1000"},
	} {
		t.Run(fmt.Sprintf("%T%+[1]v", tt.codec), func(t *testing.T) {
			if err := tt.codec.(Validator).Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.field) {
				t.Errorf("Validate: %v, want one that names %s", err, tt.field)
			}
			for _, data := range []string{"", "x", strings.Repeat("\n", 2000)} {
				if n, frame, err := tt.codec.Decode([]byte(data)); n != 0 || frame != nil || !errors.Is(err, ErrConfig) {
					t.Errorf("Decode: %d, %q, %v; want %v", n, frame, err, ErrConfig)
				}
				if dst, err := tt.codec.AppendFrame([]byte("a"), []byte(data)); string(dst) != "a" || !errors.Is(err, ErrConfig) {
					t.Errorf("AppendFrame: %q, %v; want %v", dst, err, ErrConfig)
				}
			}
			if s, ok := tt.codec.(Sizer); ok {
				if n, exact := s.FrameSize(make([]byte, 10)); exact {
					t.Errorf("FrameSize: %d, want none", n)
				}
			}
		})
	}
}

func TestExtremesAreValid(t *testing.T) {
	for _, c := range []Codec{
		Lines{Max: math.MaxInt}, Varint{Max: math.MaxInt}, Fixed{Size: math.MaxInt},
		Delimiter{Delim: "long", Max: 1}, Delimiter{Delim: "y", Max: math.MaxInt},
		Length{Max: math.MaxInt}, Length{Max: math.MaxInt, Offset: length.MaxSetting, Strip: length.MaxSetting, Size: 8},
		Length{Max: math.MaxInt, Adjust: length.MaxSetting}, Length{Max: math.MaxInt, Adjust: -length.MaxSetting},
		Length{Max: 4, Strip: StripNone}, // one frame, which is empty
	} {
		if err := c.(Validator).Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if n, frame, err := c.Decode([]byte("x")); n != 0 || frame != nil || err != nil {
			t.Errorf("%+v: %d, %q, %v", c, n, frame, err)
		}
	}
}

// Plain codecs are comparable, so they may be map keys, or parts of a struct that is compared.
func TestComparable(t *testing.T) {
	for _, c := range []Codec{Raw{}, Lines{}, Delimiter{}, Fixed{}, Length{}, Varint{}} {
		if !reflect.TypeOf(c).Comparable() {
			t.Errorf("%T is not", c)
		}
	}
}
