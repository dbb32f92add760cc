package codec

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/length"
)

// The pictures in the documentation, and their neighbours.
func TestLengthWireForms(t *testing.T) {
	for _, tt := range []struct {
		codec Length
		wire  string
		frame string
	}{
		{Length{}, "\x00\x00\x00\x05HELLO", "HELLO"},
		{Length{LittleEndian: true}, "\x05\x00\x00\x00HELLO", "HELLO"},
		{Length{Size: 1}, "\x05HELLO", "HELLO"},
		{Length{Size: 2}, "\x00\x05HELLO", "HELLO"},
		{Length{Size: 2, LittleEndian: true}, "\x05\x00HELLO", "HELLO"},
		{Length{Size: 3}, "\x00\x00\x05HELLO", "HELLO"},
		{Length{Size: 3, LittleEndian: true}, "\x05\x00\x00HELLO", "HELLO"},
		{Length{Size: 8}, "\x00\x00\x00\x00\x00\x00\x00\x05HELLO", "HELLO"},
		{Length{Size: 8, LittleEndian: true}, "\x05\x00\x00\x00\x00\x00\x00\x00HELLO", "HELLO"},
		{Length{Size: 2, Strip: StripNone}, "\x00\x05HELLO", "\x00\x05HELLO"},
		{Length{Size: 2, Inclusive: true}, "\x00\x07HELLO", "HELLO"},
		{Length{Size: 2, Adjust: -2}, "\x00\x07HELLO", "HELLO"},
		{Length{Offset: 2, Size: 2, Strip: StripNone}, "\xca\xfe\x00\x05HELLO", "\xca\xfe\x00\x05HELLO"},
		{Length{Offset: 2, Size: 2, Strip: 4}, "\x00\x00\x00\x05HELLO", "HELLO"},
		{Length{Offset: 2, Size: 2}, "\x00\x00\x00\x05HELLO", "HELLO"},
		{Length{Offset: 2, Size: 2, Strip: 1}, "\x00\xfe\x00\x05HELLO", "\xfe\x00\x05HELLO"},
		{Length{Offset: 2, Size: 2, Adjust: -4, Strip: StripNone}, "\xca\xfe\x00\x09HELLO", "\xca\xfe\x00\x09HELLO"},
		{Length{Offset: 2, Size: 2, Adjust: -2, Inclusive: true}, "\x00\x00\x00\x09HELLO", "HELLO"},
		{Length{Size: 2, Adjust: 1}, "\x00\x05\x07HELLO", "\x07HELLO"},
		{Length{Size: 2, Adjust: 1, Strip: 3}, "\x00\x05\x00HELLO", "HELLO"},
		{Length{Size: 1, Strip: 3}, "\x07\x00\x00HELLO", "HELLO"},
	} {
		t.Run(fmt.Sprintf("%+v %q", tt.codec, tt.wire), func(t *testing.T) {
			n, frame, err := tt.codec.Decode([]byte(tt.wire + "next"))
			if n != len(tt.wire) || string(frame) != tt.frame || err != nil {
				t.Errorf("Decode = %d, %q, %v; want %d, %q", n, frame, err, len(tt.wire), tt.frame)
			}
			wire, err := tt.codec.AppendFrame(nil, []byte(tt.frame))
			if string(wire) != tt.wire || err != nil {
				t.Errorf("AppendFrame(%q) = %q, %v; want %q", tt.frame, wire, err, tt.wire)
			}
			if size, ok := tt.codec.FrameSize([]byte(tt.wire)); size != len(tt.wire) || !ok {
				t.Errorf("FrameSize = %d, %t; want %d, true", size, ok, len(tt.wire))
			}
		})
	}
}

// Hostile fields, with the header and nothing more: the answer must not wait for the rest.
func TestLengthFieldExtremes(t *testing.T) {
	ff := strings.Repeat("\xff", 8)
	for _, tt := range []struct {
		codec Length
		wire  string
		want  error
	}{
		{Length{}, ff[:4], ErrTooLong},
		{Length{}, "\x80\x00\x00\x00", ErrTooLong},
		{Length{Size: 8}, ff, ErrTooLong},
		{Length{Size: 8, Max: math.MaxInt}, ff, ErrTooLong},
		{Length{Size: 8, Max: math.MaxInt}, "\x80" + strings.Repeat("\x00", 7), ErrTooLong},
		{Length{Size: 8, Max: math.MaxInt}, "\x7f" + ff[:7], ErrTooLong},
		{Length{Size: 8, Max: math.MaxInt, Adjust: length.MaxSetting}, "\x7f" + ff[:7], ErrTooLong},
		{Length{Size: 8, Adjust: -length.MaxSetting, Max: 10}, ff, ErrTooLong},
		{Length{Size: 8, Adjust: -10}, "\x00\x00\x00\x00\x00\x00\x00\x09", ErrMalformed},
		{Length{Size: 8, Adjust: -10}, "\x00\x00\x00\x00\x00\x00\x00\x0a", nil},
		{Length{Inclusive: true}, "\x00\x00\x00\x03", ErrMalformed},
		{Length{Inclusive: true}, "\x00\x00\x00\x04", nil},
		{Length{Size: 1, Strip: 3}, "\x01", ErrMalformed},
		{Length{Size: 1, Strip: 3}, "\x02ab", nil},
		{Length{Max: 5}, "\x00\x00\x00\x06", ErrTooLong},
		{Length{Max: 5, Strip: StripNone}, "\x00\x00\x00\x02", ErrTooLong},
		{Length{Max: 5, Strip: StripNone}, "\x00\x00\x00\x01x", nil},
		{Length{Max: 5, Strip: 5}, "\x00\x00\x00\x06abcdef", nil}, // five of the six are delivered
	} {
		t.Run(fmt.Sprintf("%+v %x", tt.codec, tt.wire), func(t *testing.T) {
			n, frame, err := tt.codec.Decode([]byte(tt.wire))
			if !errors.Is(err, tt.want) || tt.want != nil && n != 0 || tt.want == nil && frame == nil {
				t.Errorf("Decode = %d, %q, %v; want %v", n, frame, err, tt.want)
			}
		})
	}
}

// AppendFrame refuses what the field cannot say and what Decode would refuse.
func TestLengthAppendFrameExtremes(t *testing.T) {
	for _, tt := range []struct {
		codec Length
		size  int
		want  error
	}{
		{Length{Size: 1}, 255, nil},
		{Length{Size: 1}, 256, ErrTooLong},
		{Length{Size: 1, Inclusive: true}, 254, nil},
		{Length{Size: 1, Inclusive: true}, 255, ErrTooLong},
		{Length{Size: 1, Adjust: 1}, 0, ErrMalformed},
		{Length{Size: 1, Adjust: 1}, 256, nil},
		{Length{Size: 1, Adjust: 1}, 257, ErrTooLong},
		{Length{Size: 2}, 65535, nil},
		{Length{Size: 2}, 65536, ErrTooLong},
		{Length{}, DefaultMax, nil},
		{Length{}, DefaultMax + 1, ErrTooLong},
		{Length{Max: 10}, 11, ErrTooLong},
		{Length{Strip: StripNone}, 3, ErrMalformed},
		{Length{Strip: StripNone}, 4, nil},
		{Length{Offset: 2, Strip: 1}, 4, ErrMalformed},
		{Length{Offset: 2, Strip: 1}, 5, nil},
	} {
		t.Run(fmt.Sprintf("%+v %d", tt.codec, tt.size), func(t *testing.T) {
			dst, err := tt.codec.AppendFrame([]byte("dst"), make([]byte, tt.size))
			if !errors.Is(err, tt.want) || err != nil && string(dst) != "dst" {
				t.Errorf("AppendFrame: %d bytes, %v; want %v", len(dst), err, tt.want)
			}
		})
	}
}

// Every combination of small settings, against the sum in the documentation.
func TestLengthExhaustively(t *testing.T) {
	for _, width := range []int{1, 2, 3, 4, 8} {
		for offset := range 3 {
			for adjust := -7; adjust <= 2; adjust++ {
				for strip := -1; strip <= 6; strip++ {
					for _, inclusive := range []bool{false, true} {
						c := Length{Offset: offset, Size: width, Adjust: adjust, Strip: strip, Inclusive: inclusive, Max: 9}
						if c.Validate() == nil {
							checkLength(t, c)
						}
					}
				}
			}
		}
	}
}

func checkLength(t *testing.T, c Length) {
	t.Helper()
	head, strip := c.Offset+c.Size, c.Strip
	switch strip {
	case 0:
		strip = head
	case StripNone:
		strip = 0
	}
	for v := range 20 {
		size := head + v + c.Adjust
		if c.Inclusive {
			size -= c.Size
		}
		want := "a frame"
		switch {
		case size < head || size < strip:
			want = ErrMalformed.Error()
		case size-strip > c.Max:
			want = ErrTooLong.Error()
		}
		wire := make([]byte, 60)
		wire[head-1] = byte(v)
		n, frame, err := c.Decode(wire)
		got := "a frame"
		if err != nil {
			got, _, _ = strings.Cut(err.Error(), ": the")
		} else if n != size || len(frame) != size-strip {
			got = fmt.Sprintf("%d bytes, %d delivered", n, len(frame))
		}
		if got != want {
			t.Errorf("%+v, field %d: %s, want %s", c, v, got, want)
		}
		if err != nil {
			continue
		}
		// wire is zeros but for the field, as AppendFrame makes it.
		if again, err := c.AppendFrame(nil, frame); string(again) != string(wire[:n]) || err != nil {
			t.Errorf("%+v, field %d: sent again %x, %v, want %x", c, v, again, err, wire[:n])
		}
	}
}
