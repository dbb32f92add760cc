package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
)

// Each target is given a configuration, bytes that a peer might send, in pieces of some size, and a
// payload to send.

func FuzzRaw(f *testing.F) {
	f.Add([]byte("hello"), uint8(2), []byte("x"))
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte) {
		got, err := decode(codec.Raw{}, wire, int(piece))
		if joined := bytes.Join(got, nil); err != nil || !bytes.Equal(joined, wire) {
			t.Errorf("got %q, %v", joined, err)
		}
		if sent, err := (codec.Raw{}).AppendFrame(nil, payload); err != nil || !bytes.Equal(sent, payload) {
			t.Errorf("AppendFrame: %q, %v", sent, err)
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("GET a\r\n\nGET b"), uint8(3), []byte("a\r"), 10)
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte, max int) {
		c := codec.Lines{Max: max}
		hostile(t, c, wire, int(piece))
		roundTrip(t, c, payload, int(piece))
	})
}

func FuzzDelimiter(f *testing.F) {
	f.Add([]byte("a||b|c|||"), uint8(3), []byte("a|"), 10, "||")
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte, max int, delim string) {
		c := codec.Delimiter{Delim: delim, Max: max}
		hostile(t, c, wire, int(piece))
		roundTrip(t, c, payload, int(piece))
	})
}

func FuzzFixed(f *testing.F) {
	f.Add([]byte("abcdefgh"), uint8(2), []byte("abc"), 3)
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte, size int) {
		c := codec.Fixed{Size: size}
		hostile(t, c, wire, int(piece))
		roundTrip(t, c, payload, int(piece))
	})
}

func FuzzVarint(f *testing.F) {
	f.Add([]byte("\x05hello\x00\xac\x02abc"), uint8(1), []byte("abc"), 300)
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte, max int) {
		c := codec.Varint{Max: max}
		hostile(t, c, wire, int(piece))
		roundTrip(t, c, payload, int(piece))
	})
}

func FuzzLength(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05hello\x00"), uint8(1), []byte("abc"), 0, 0, 0, 0, 0, false, false)
	f.Fuzz(func(t *testing.T, wire []byte, piece uint8, payload []byte,
		offset, size, adjust, strip, max int, little, inclusive bool) {
		c := codec.Length{Offset: offset, Size: size, Adjust: adjust, Strip: strip, Max: max,
			LittleEndian: little, Inclusive: inclusive}
		hostile(t, c, wire, int(piece))
		if offset > 1<<20 || strip > 1<<20 {
			return // valid, but each frame would be many megabytes of zeros
		}
		lengthRoundTrip(t, c, payload)
		if strip == 0 {
			roundTrip(t, c, payload, int(piece))
		}
		compiled, err := framing.Compile(c)
		if err != nil {
			return
		}
		a, errA := decode(c, wire, int(piece))
		b, errB := decode(compiled, wire, int(piece))
		if fmt.Sprint(a, errA) != fmt.Sprint(b, errB) {
			t.Errorf("%+v: %q, %v, but compiled %q, %v", c, a, errA, b, errB)
		}
	})
}

// FuzzPause decodes with a Decoder that sometimes keeps its buffer, lends it, or switches to an
// equal codec. None of that may change the result.
func FuzzPause(f *testing.F) {
	codecs := []codec.Codec{codec.Varint{Max: 100}, codec.Lines{Max: 100}, codec.Delimiter{Delim: "\x01\x01\x02", Max: 100},
		codec.Length{Size: 1, Adjust: -3, Max: 100}, codec.Fixed{Size: 5}}
	f.Add([]byte("\x03abc\x00\x05hello\x02x"), []byte{1, 2, 200, 3}, uint8(0))
	f.Add(bytes.Repeat([]byte("\x01a"), 900), []byte{255, 130, 7, 128}, uint8(0))
	f.Add(bytes.Repeat([]byte("line\r\n"), 200), []byte{255, 130, 7, 128}, uint8(1))
	f.Add(bytes.Repeat([]byte("\x01\x01\x01\x02"), 200), []byte{255, 130, 7, 128}, uint8(2))
	f.Add(bytes.Repeat([]byte("\x05ab"), 200), []byte{255, 130, 7, 128}, uint8(3))
	f.Fuzz(func(t *testing.T, wire, script []byte, which uint8) {
		c := codecs[int(which)%len(codecs)]
		want, wantErr := decode(c, wire, len(wire))
		got, err := paused(c, wire, script)
		if fmt.Sprint(got) != fmt.Sprint(want) || known(err) != known(wantErr) {
			t.Errorf("%+v: %q, %v, want %q, %v", c, got, err, want, wantErr)
		}
	})
}

// paused feeds wire in pieces as long as the bytes of script say. Their top bits say when to pause
// after the first frame, and to go on without new bytes.
func paused(c codec.Codec, wire, script []byte) (got [][]byte, err error) {
	var d framing.Decoder
	d.Init(c, new(framing.Pool))
	for i := 0; len(wire) > 0 || d.Buffered() > 0; i++ {
		step := byte(255)
		if i < len(script) {
			step = script[i]
		}
		data := d.Lend() // now and then, in place of new bytes
		if data == nil || step&1 == 0 {
			d.Keep(data)
			data = wire[:min(len(wire), int(step&127)+1)]
			wire = wire[len(data):]
		}
		done := len(wire) == 0 && i >= len(script)
		for more := true; more; {
			var frame []byte
			if data, frame, more, err = d.Next(data); err != nil {
				return got, err
			}
			if frame != nil {
				got = append(got, bytes.Clone(frame))
			}
			if more && step&128 != 0 && !done {
				d.Keep(data)
				d.SetCodec(c)
				break
			}
		}
		if done {
			break
		}
	}
	return got, nil
}

// decode runs wire through a Decoder.
func decode(c codec.Codec, wire []byte, piece int) (got [][]byte, err error) {
	var d framing.Decoder
	d.Init(c, nil)
	for len(wire) > 0 {
		data := wire[:min(max(1, piece), len(wire))]
		wire = wire[len(data):]
		for more := true; more; {
			var frame []byte
			if data, frame, more, err = d.Next(data); err != nil {
				return got, err
			}
			if frame != nil {
				got = append(got, bytes.Clone(frame))
			}
		}
	}
	return got, nil
}

// hostile wants the same of wire in pieces as of wire in one, and no error but the package's own.
func hostile(t *testing.T, c codec.Codec, wire []byte, piece int) {
	t.Helper()
	if c.(codec.Validator).Validate() != nil {
		if _, _, err := c.Decode(wire); !errors.Is(err, codec.ErrConfig) {
			t.Errorf("%+v is invalid, but Decode says %v", c, err)
		}
	}
	whole, wholeErr := decode(c, wire, len(wire))
	parts, partsErr := decode(c, wire, piece)
	if fmt.Sprint(whole) != fmt.Sprint(parts) || known(wholeErr) != known(partsErr) {
		t.Errorf("%+v: %q: %q, %v, but in pieces of %d %q, %v", c, wire, whole, wholeErr, piece, parts, partsErr)
	}
	if wholeErr != nil && known(wholeErr) == nil {
		t.Errorf("%+v: error %v", c, wholeErr)
	}
}

// known returns the error of this package that err wraps.
func known(err error) error {
	for _, e := range []error{codec.ErrTooLong, codec.ErrMalformed, codec.ErrConfig} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// roundTrip wants what AppendFrame takes to come out of Decode, and what it refuses to leave no
// trace.
func roundTrip(t *testing.T, c codec.Codec, payload []byte, piece int) {
	t.Helper()
	wire, err := c.AppendFrame([]byte("before"), payload)
	if err != nil {
		if string(wire) != "before" || known(err) == nil {
			t.Errorf("%+v: AppendFrame(%q) = %q, %v", c, payload, wire, err)
		}
		return
	}
	wire, ok := bytes.CutPrefix(wire, []byte("before"))
	got, err := decode(c, bytes.Repeat(wire, 2), piece)
	if !ok || err != nil || len(got) != 2 || !bytes.Equal(got[0], payload) || !bytes.Equal(got[1], payload) {
		t.Errorf("%+v: %q became %q, then %q, %v", c, payload, wire, got, err)
	}
}

// lengthRoundTrip is roundTrip for frames that are delivered with some of their header, of which
// AppendFrame sets the length field: the rest must be what it was, and sending it again must change
// nothing.
func lengthRoundTrip(t *testing.T, c codec.Length, payload []byte) {
	t.Helper()
	wire, err := c.AppendFrame(nil, payload)
	if err != nil {
		return // see roundTrip
	}
	n, got, err := c.Decode(wire)
	if n != len(wire) || err != nil || len(got) != len(payload) {
		t.Fatalf("%+v: %q became %q, then %d, %q, %v", c, payload, wire, n, got, err)
	}
	size, strip := c.Size, max(c.Strip, 0)
	if size == 0 {
		size = 4
	}
	if c.Strip == 0 {
		strip = c.Offset + size
	}
	for i := range got {
		if at := i + strip; got[i] != payload[i] && (at < c.Offset || at >= c.Offset+size) {
			t.Errorf("%+v: byte %d changed from %#x to %#x", c, i, payload[i], got[i])
		}
	}
	if again, err := c.AppendFrame(nil, got); err != nil || !bytes.Equal(again, wire) {
		t.Errorf("%+v: %q sent again became %q, %v", c, wire, again, err)
	}
}
