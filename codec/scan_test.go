package codec

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Input after Max bytes decides only once it cannot be the line's end any more.
func TestLinesAtTheLimit(t *testing.T) {
	for _, tt := range []struct {
		data    string
		advance int
		want    error
	}{
		{"0123456789", 0, nil},
		{"0123456789\r", 0, nil},
		{"0123456789\r\n", 12, nil},
		{"0123456789\n", 11, nil},
		{"0123456789x", 0, ErrTooLong},
		{"0123456789x\n", 0, ErrTooLong},
		{"0123456789\r\r", 0, ErrTooLong},
		{"0123456789\rx", 0, ErrTooLong},
		{"012345678\r\r\n", 12, nil},
	} {
		t.Run(fmt.Sprintf("%q", tt.data), func(t *testing.T) {
			for seen := range tt.data {
				n, frame, err := Lines{Max: 10}.DecodeFrom([]byte(tt.data), min(seen, 10))
				if n != tt.advance || (frame != nil) != (n > 0) || !errors.Is(err, tt.want) {
					t.Errorf("DecodeFrom(%d) = %d, %q, %v; want %d, %v", seen, n, frame, err, tt.advance, tt.want)
				}
			}
		})
	}
}

// A delimiter that may still begin does not count, one that did does.
func TestDelimiterAtTheLimit(t *testing.T) {
	c := Delimiter{Delim: "\r\n", Max: 10}
	for _, tt := range []struct {
		data    string
		advance int
		want    error
	}{
		{"0123456789", 0, nil},
		{"0123456789\r", 0, nil},
		{"0123456789\r\n", 12, nil},
		{"0123456789x", 0, ErrTooLong},
		{"0123456789xy", 0, ErrTooLong},
		{"0123456789x\r\n", 0, ErrTooLong},
	} {
		t.Run(fmt.Sprintf("%q", tt.data), func(t *testing.T) {
			n, frame, err := c.Decode([]byte(tt.data))
			if n != tt.advance || (frame != nil) != (n > 0) || !errors.Is(err, tt.want) {
				t.Errorf("Decode = %d, %q, %v; want %d, %v", n, frame, err, tt.advance, tt.want)
			}
		})
	}
}

// Delimiter fails with the first byte after which no delimiter can end a frame of at most Max bytes.
func TestDelimiterTooLongAtOnce(t *testing.T) {
	texts := []string{""} // of a and b, with at most 8 bytes
	for i := 0; len(texts[i]) < 8; i++ {
		texts = append(texts, texts[i]+"a", texts[i]+"b")
	}
	for _, c := range []Delimiter{{"a", 3}, {"aa", 3}, {"aab", 3}, {"abab", 2}, {"aabaa", 1}} {
		hopeful := map[string]bool{} // what a frame and its delimiter may begin with
		for _, text := range texts {
			if end := strings.Index(text, c.Delim); end >= 0 && end <= c.Max {
				for n := range len(text) + 1 {
					hopeful[text[:n]] = true
				}
			}
		}
		for _, text := range texts {
			for seen := range len(text) + 1 {
				if seen > 0 && (strings.Contains(text[:seen], c.Delim) || !hopeful[text[:seen]]) {
					break // the caller would not have gone on
				}
				if n, _, err := c.DecodeFrom([]byte(text), seen); (err == nil) != hopeful[text] || err != nil && !errors.Is(err, ErrTooLong) {
					t.Errorf("%+v.DecodeFrom(%q, %d) = %d, %v; can it become a frame: %v", c, text, seen, n, err, hopeful[text])
				}
			}
		}
	}
}

// A frame is refused if it and its delimiter have an earlier delimiter in them, not only if it
// contains one.
func TestDelimiterAcrossTheEnd(t *testing.T) {
	for _, tt := range []struct {
		delim, frame string
		want         error
	}{
		{"||", "a|b", nil},
		{"||", "a|", ErrMalformed},
		{"||", "a||b", ErrMalformed},
		{"aab", "a", nil},
		{"aba", "ab", ErrMalformed},
		{"\r\n", "a\r", nil},
		{"\r\n", "\n", nil},
	} {
		t.Run(fmt.Sprintf("%q in %q", tt.frame, tt.delim), func(t *testing.T) {
			c := Delimiter{Delim: tt.delim}
			wire, err := c.AppendFrame([]byte("dst"), []byte(tt.frame))
			if !errors.Is(err, tt.want) || !strings.HasPrefix(string(wire), "dst") {
				t.Errorf("AppendFrame: %q, %v; want %v", wire, err, tt.want)
			}
			if n, frame, _ := c.Decode(wire[3:]); err == nil && (n != len(wire)-3 || string(frame) != tt.frame) {
				t.Errorf("Decode: %q, want %q", frame, tt.frame)
			}
		})
	}
}
