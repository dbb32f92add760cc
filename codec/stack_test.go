package codec_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/internal/framing"
)

func TestStackConformance(t *testing.T) {
	for _, c := range []struct {
		name  string
		stack codec.Stack
		max   int
	}{
		{"lines in blocks", codec.Stack{Outer: codec.Length{Max: 2000}, Inner: codec.Lines{Max: 1000}}, 1000},
		{"blocks in blocks", codec.Stack{Outer: codec.Length{Size: 2}, Inner: codec.Varint{Max: 1000}}, 1000},
		{"blocks in lines of one size", codec.Stack{Outer: codec.Varint{}, Inner: codec.Fixed{Size: 10}}, 10},
		{"three", codec.Stack{Outer: codec.Length{}, Inner: codec.Stack{Outer: codec.Varint{}, Inner: codec.Lines{Max: 500}}}, 500},
		{"three, the other way", codec.Stack{Outer: codec.Stack{Outer: codec.Length{}, Inner: codec.Varint{}}, Inner: codec.Lines{Max: 500}}, 500},
		{"four", codec.Stack{Outer: codec.Stack{Outer: codec.Length{}, Inner: codec.Varint{}}, Inner: codec.Stack{Outer: codec.Varint{}, Inner: codec.Lines{Max: 500}}}, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := codectest.Suite{New: func() codec.Codec { return c.stack }, Max: c.max}
			if _, fixed := c.stack.Inner.(codec.Fixed); fixed {
				s.Fill = func(n int) []byte {
					if n != c.max {
						return nil
					}
					return bytes.Repeat([]byte("x"), n)
				}
				s.Samples = [][]byte{s.Fill(c.max), []byte("0123456789")}
			}
			s.Run(t)
		})
	}
}

// pack returns a frame of two bytes of length.
func pack(p string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...)
}

var linesInBlocks = codec.Stack{Outer: codec.Length{Size: 2}, Inner: codec.Lines{Max: 20}}

// received returns the frames that a Decoder finds in pieces.
func received(d *framing.Decoder, pieces ...[]byte) (got []string, err error) {
	for _, p := range pieces {
		for more := true; more; {
			var frame []byte
			if p, frame, more, err = d.Next(p); err != nil {
				return got, err
			}
			if frame != nil {
				got = append(got, string(frame))
			}
		}
	}
	return got, nil
}

// Inner's frames begin and end anywhere in Outer's.
func TestStackAcrossFrames(t *testing.T) {
	wire := bytes.Join([][]byte{pack("one\ntwo\nth"), pack(""), pack("ree"), pack("\n\nfive\n")}, nil)
	want := []string{"one", "two", "three", "", "five"}
	for n := 1; n <= len(wire); n++ {
		var d framing.Decoder
		d.Init(linesInBlocks, new(framing.Pool))
		var pieces [][]byte
		for rest := wire; len(rest) > 0; {
			k := min(n, len(rest))
			pieces, rest = append(pieces, bytes.Clone(rest[:k])), rest[k:]
		}
		got, err := received(&d, pieces...)
		if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
			t.Errorf("in pieces of %d bytes: %q, %v, want %q", n, got, err, want)
		}
		if d.Buffered() > 0 {
			t.Errorf("in pieces of %d bytes: %d are left over", n, d.Buffered())
		}
	}
}

// A Stack inside a Stack, on either side, finds all frames in what has come, also in another process.
func TestStackInAStack(t *testing.T) {
	block := func(p string) string { return string(binary.AppendUvarint(nil, uint64(len(p)))) + p }
	blocks := block("one\ntwo\nth") + block("ree\n") + block("") + block("\nfive\n")
	cut := len(blocks) - 3
	wire := append(pack(blocks[:cut]), pack(blocks[cut:])...)
	want := []string{"one", "two", "three", "", "five"}
	length, varint, lines := codec.Length{Size: 2}, codec.Varint{}, codec.Lines{}
	for name, s := range map[string]codec.Stack{
		"as Inner": {Outer: length, Inner: codec.Stack{Outer: varint, Inner: lines}},
		"as Outer": {Outer: codec.Stack{Outer: length, Inner: varint}, Inner: lines},
	} {
		for n := 1; n <= len(wire); n++ {
			var d framing.Decoder
			d.Init(s, new(framing.Pool))
			got, err := received(&d, slices.Collect(slices.Chunk(bytes.Clone(wire), n))...)
			if fmt.Sprint(got) != fmt.Sprint(want) || err != nil || d.Buffered() > 0 {
				t.Errorf("%s, in pieces of %d bytes: %q, %v, want %q; %d bytes are left over", name, n, got, err, want, d.Buffered())
			}
		}
		for n := range want {
			var d framing.Decoder
			d.Init(s, nil)
			rest := pack(blocks)
			var got []string
			for more := true; more && len(got) <= n; {
				var frame []byte
				var err error
				if rest, frame, more, err = d.Next(rest); err != nil {
					t.Fatal(err)
				}
				if frame != nil {
					got = append(got, string(frame))
				}
			}
			state, err := d.Codec().(codec.Saver).Save()
			if err != nil {
				t.Fatal(err)
			}
			var next framing.Decoder
			next.Init(s, nil)
			if err := next.Codec().(codec.Saver).Restore(state); err != nil {
				t.Fatal(err)
			}
			next.Restored()
			more, err := received(&next, nil, rest)
			if got = append(got, more...); fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
				t.Errorf("%s, moved after %d frames: %q, %v, want %q", name, n+1, got, err, want)
			}
		}
	}
}

func TestStackBoundsTheInnerFrame(t *testing.T) {
	for _, c := range []struct {
		name  string
		stack codec.Stack
		bytes int // without an end that pass
	}{
		{"its own bound", linesInBlocks, 20},
		{"Max", codec.Stack{Outer: codec.Length{Size: 2}, Inner: endless{}, Max: 30}, 30},
		{"zero Max", codec.Stack{Outer: codec.Length{Size: 2}, Inner: endless{}}, codec.DefaultMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d framing.Decoder
			d.Init(c.stack, nil)
			fed := 0
			var err error
			for ; err == nil && fed <= c.bytes+10; fed++ {
				_, err = received(&d, pack("x"))
			}
			if !errors.Is(err, codec.ErrTooLong) {
				t.Errorf("after %d bytes: error %v, want ErrTooLong", fed, err)
			}
			if fed < c.bytes || fed > c.bytes+3 {
				t.Errorf("refused after %d bytes, want %d", fed, c.bytes)
			}
		})
	}
}

// endless never finds a frame.
type endless struct{}

func (endless) Decode([]byte) (int, []byte, error)            { return 0, nil, nil }
func (endless) AppendFrame(dst, frame []byte) ([]byte, error) { return append(dst, frame...), nil }

// SetCodec while frames are left in what the old codec has consumed: they come first.
func TestStackSetCodecWithinAFrame(t *testing.T) {
	var d framing.Decoder
	d.Init(linesInBlocks, new(framing.Pool))
	rest, frame, _, err := d.Next(append(pack("a\nb\n"), "c\nd\n"...))
	if string(frame) != "a" || err != nil {
		t.Fatalf("%q, %v, want a", frame, err)
	}
	d.SetCodec(codec.Lines{})
	got, err := received(&d, rest)
	if want := []string{"b", "c", "d"}; fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// A state that is saved in the middle of a frame of Outer has the frames that have not come yet.
func TestStackSavedWithinAFrame(t *testing.T) {
	var d framing.Decoder
	d.Init(linesInBlocks, nil)
	if _, frame, _, err := d.Next(pack("a\nb\nc")); string(frame) != "a" || err != nil {
		t.Fatalf("%q, %v, want a", frame, err)
	}
	state, err := d.Codec().(codec.Saver).Save()
	if err != nil {
		t.Fatal(err)
	}
	var next framing.Decoder
	next.Init(linesInBlocks, nil)
	if err := next.Codec().(codec.Saver).Restore(state); err != nil {
		t.Fatal(err)
	}
	next.Restored()
	got, err := received(&next, nil, pack("\n"))
	if want := []string{"b", "c"}; fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestStackConfig(t *testing.T) {
	for name, s := range map[string]codec.Stack{
		"no Outer":     {Inner: codec.Lines{}},
		"no Inner":     {Outer: codec.Lines{}},
		"negative Max": {Outer: codec.Lines{}, Inner: codec.Lines{}, Max: -1},
		"bad Inner":    {Outer: codec.Lines{}, Inner: codec.Lines{Max: -1}},
	} {
		if err := s.Validate(); !errors.Is(err, codec.ErrConfig) {
			t.Errorf("%s: Validate = %v, want ErrConfig", name, err)
		}
	}
}

func ExampleStack() {
	s := codec.Stack{Outer: codec.Length{Size: 2}, Inner: codec.Lines{}}.New()
	wire, _ := s.AppendFrame(nil, []byte("hello"))
	fmt.Printf("%q\n", wire)
	// Output: "\x00\x06hello\n"
}

// asker is Lines after a login that it asks somebody about: "welcome" is its reply, or "denied".
type asker struct {
	codec.Lines
	peer  codec.Peer
	known bool
	reply string
}

func (a *asker) New() codec.Codec { return new(asker) }

func (a *asker) Open(dst []byte, peer codec.Peer) ([]byte, time.Duration, error) {
	a.peer = peer
	return append(dst, "login?\n"...), 0, nil
}

func (a *asker) Opening() error { return nil }
func (a *asker) Opened() error  { return nil }

func (a *asker) Decode(data []byte) (int, []byte, error) {
	n, line, err := a.Lines.Decode(data)
	if a.known || line == nil || err != nil {
		return n, line, err
	}
	name := string(line)
	return n, nil, a.peer.Await(func(context.Context) {}, func() error {
		if name != "bob" {
			a.reply = "denied\n"
			return codec.ErrMalformed
		}
		a.known, a.reply = true, "welcome\n"
		return nil
	})
}

func (a *asker) DecodeFrom(data []byte, _ int) (int, []byte, error) { return a.Decode(data) }

func (a *asker) AppendReply(dst []byte) []byte {
	dst = append(dst, a.reply...)
	a.reply = ""
	return dst
}

// Inner's reply to a job is sent when the job is done, not with the next message.
func TestStackRepliesAfterAwait(t *testing.T) {
	length := codec.Length{Size: 2}
	for name, s := range map[string]codec.Stack{
		"two":               {Outer: length, Inner: &asker{}},
		"a Stack as Inner":  {Outer: length, Inner: codec.Stack{Outer: codec.Raw{}, Inner: &asker{}}},
		"a Stack as Outer":  {Outer: codec.Stack{Outer: length, Inner: codec.Raw{}}, Inner: &asker{}},
		"it waits in Outer": {Outer: codec.Stack{Outer: length, Inner: &asker{}}, Inner: codec.Raw{}},
	} {
		for login, want := range map[string]struct {
			reply string
			err   error
		}{"bob": {"welcome\n", nil}, "eve": {"denied\n", codec.ErrMalformed}} {
			c := s.New()
			var then func() error
			await := func(_ func(context.Context), f func() error) error { then = f; return nil }
			if _, _, err := c.(codec.Opener).Open(nil, codec.Peer{Await: await}); err != nil {
				t.Fatal(err)
			}
			if _, frame, err := c.Decode(pack(login + "\n")); frame != nil || err != nil || then == nil {
				t.Fatalf("%s: Decode = %q, %v, want none; it waits: %v", name, frame, err, then != nil)
			}
			if got := c.(codec.Responder).AppendReply(nil); len(got) > 0 {
				t.Errorf("%s, %s: %q before the job is done, want nothing", name, login, got)
			}
			err := then()
			if got := c.(codec.Responder).AppendReply(nil); string(got) != string(pack(want.reply)) || !errors.Is(err, want.err) {
				t.Errorf("%s, %s: replies %q, %v, want %q, %v", name, login, got, err, pack(want.reply), want.err)
			}
		}
	}
}
