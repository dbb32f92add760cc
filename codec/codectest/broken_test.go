package codectest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// broken is Lines with one method replaced: each of them must fail the check that is there for it.
type broken struct {
	codec.Lines
	decode func(data []byte) (int, []byte, error)
	append func(dst, frame []byte) ([]byte, error)
}

func (b *broken) Decode(data []byte) (int, []byte, error) {
	if b.decode != nil {
		return b.decode(data)
	}
	return b.Lines.Decode(data)
}

func (b *broken) AppendFrame(dst, frame []byte) ([]byte, error) {
	if b.append != nil {
		return b.append(dst, frame)
	}
	return b.Lines.AppendFrame(dst, frame)
}

// DecodeFrom has decode run, if there is one.
func (b *broken) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	if b.decode != nil {
		return b.decode(data)
	}
	return b.Lines.DecodeFrom(data, seen)
}

var lines = codec.Lines{Max: 1000}

// tooLow has a limit that is none.
type tooLow struct{ codec.Lines }

func (tooLow) FrameSize([]byte) (int, bool) { return 5, false }

// decodes returns a codec that answers as Lines, changed by f.
func decodes(f func(data []byte, n int, frame []byte, err error) (int, []byte, error)) codec.Codec {
	return &broken{Lines: lines, decode: func(data []byte) (int, []byte, error) {
		n, frame, err := lines.Decode(data)
		return f(data, n, frame, err)
	}}
}

func appends(f func(dst, frame []byte) ([]byte, error)) codec.Codec {
	return &broken{Lines: lines, append: f}
}

func TestBrokenCodecsFail(t *testing.T) {
	var kept []byte
	for _, tt := range []struct {
		name  string
		codec codec.Codec
		check string // one of those that must fail
	}{
		{"finds frames above its limit", tooLow{}, "Alone"},
		{"makes no progress", decodes(func(_ []byte, _ int, frame []byte, err error) (int, []byte, error) {
			return 0, frame, err
		}), "Alone"},
		{"waits for ever", decodes(func([]byte, int, []byte, error) (int, []byte, error) { return 0, nil, nil }), "Alone"},
		{"consumes too much", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if n > 0 {
				n++
			}
			return n, frame, err
		}), "Alone"},
		{"consumes less than nothing", decodes(func(_ []byte, n int, frame []byte, err error) (int, []byte, error) {
			return -n, frame, err
		}), "Decoder"},
		{"empty frames are nil", decodes(func(_ []byte, n int, frame []byte, err error) (int, []byte, error) {
			if len(frame) == 0 {
				frame = nil
			}
			return n, frame, err
		}), "Alone"},
		{"delivers what there is", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if n == 0 {
				return len(data), data, err
			}
			return n, frame, err
		}), "ByteByByte"},
		{"takes one frame of many", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if n > 0 {
				n = len(data)
			}
			return n, frame, err
		}), "Together"},
		{"changes its data", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			copy(frame, bytes.ToUpper(frame))
			return n, frame, err
		}), "Alone"},
		{"keeps its data", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if n == 0 {
				kept = data
			} else if kept != nil {
				copy(frame, bytes.Clone(kept))
				kept = nil
			}
			return n, bytes.Clone(frame), err
		}), "RandomPieces"},
		{"looks behind its data", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			_ = data[:4]
			return n, frame, err
		}), "ByteByByte"},
		{"shares its state", new(counting), "Interleaved"},
		{"shares the state of New", &sharing{}, "Interleaved"},
		{"knows no limit", &broken{Lines: codec.Lines{Max: 1 << 30}}, "Limit"},
		{"limits one way only", &broken{Lines: codec.Lines{Max: 1 << 20}, append: lines.AppendFrame}, "Flood"},
		{"calls too long malformed", appends(func(dst, frame []byte) ([]byte, error) {
			dst, err := lines.AppendFrame(dst, frame)
			if err != nil {
				err = codec.ErrMalformed
			}
			return dst, err
		}), "Limit"},
		{"leaves half a frame in dst", appends(func(dst, frame []byte) ([]byte, error) {
			got, err := lines.AppendFrame(dst, frame)
			if err != nil {
				got = append(dst, frame[:1]...)
			}
			return got, err
		}), "Limit"},
		{"overwrites dst", appends(func(dst, frame []byte) ([]byte, error) {
			return lines.AppendFrame(dst[:0], frame)
		}), "AppendFrame"},
		{"changes what it sends", appends(func(dst, frame []byte) ([]byte, error) {
			got, err := lines.AppendFrame(dst, frame)
			clear(frame)
			return got, err
		}), "AppendFrame"},
		{"writes after what it sends", appends(func(dst, frame []byte) ([]byte, error) {
			_ = append(frame, "##"...)
			return lines.AppendFrame(dst, frame)
		}), "AppendFrame"},
		{"keeps what it sends", new(delta), "Together"},
		{"keeps dst", new(keepsDst), "Together"},
		{"sends what ends a line", appends(func(dst, frame []byte) ([]byte, error) {
			return append(append(dst, frame...), '\n'), nil
		}), "Payloads"},
		{"cuts off what it cannot send", appends(func(dst, frame []byte) ([]byte, error) {
			frame, _, _ = bytes.Cut(frame, []byte("\n"))
			return lines.AppendFrame(dst, frame)
		}), "Payloads"},
		{"leaves a trace of what it refuses", appends(func(dst, frame []byte) ([]byte, error) {
			got, err := lines.AppendFrame(dst, frame)
			if errors.Is(err, codec.ErrMalformed) {
				got = append(dst, frame...)
			}
			return got, err
		}), "Payloads"},
		{"rounds the trip off", appends(func(dst, frame []byte) ([]byte, error) {
			return lines.AppendFrame(dst, bytes.TrimSuffix(frame, []byte("x")))
		}), "Alone"},
		{"panics", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if data[0] == 0xff {
				panic("unexpected byte")
			}
			return n, frame, err
		}), "Flood"},
		{"refuses by piece", decodes(func(data []byte, n int, frame []byte, err error) (int, []byte, error) {
			if n == 0 && bytes.HasSuffix(data, []byte("b")) {
				return 0, nil, codec.ErrMalformed
			}
			return n, frame, err
		}), "Hostile"},
		{"resumes too late", lateResumer{lines}, "Resume"},
		{"resumes by name only", rescanner{lines}, "Resume"},
		{"hoards what it consumes", new(hoarder), "Memory"},
		{"sizes by guess", guesser{lines}, "FrameSize"},
		{"repeats its reply", &parrot{}, "Alone"},
		{"invalid", codec.Length{Size: 5}, "Configuration"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Suite{New: func() codec.Codec { return tt.codec }, Samples: samples(tt.codec)}
			if err := s.check(named(t, tt.check)); err == nil {
				t.Errorf("passes %s", tt.check)
			}
		})
	}
}

// A NextFrame that never returns nil fails the checks, and does not hang them.
func TestEndlessUnpackersFail(t *testing.T) {
	for name, want := range map[string]bool{"Alone": true, "Decoder": true, "Memory": false} {
		s := Suite{New: func() codec.Codec { return new(endless) }, Samples: [][]byte{[]byte("x")}}
		if err := s.check(named(t, name)); want && (err == nil || !strings.Contains(err.Error(), "NextFrame")) {
			t.Errorf("%s: error %v, want one that names NextFrame", name, err)
		}
	}
}

// endless is an Unpacker that does not forget its frame.
type endless struct{ broken }

func (e *endless) New() codec.Codec           { return &endless{broken{Lines: lines}} }
func (e *endless) NextFrame() ([]byte, error) { return []byte("hello"), nil }

func TestBrokenConversationsFail(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codec codec.Codec
		check string
	}{
		{"greets over what is there", new(usher), "Greeting"},
		{"greets, and does not", &usher{err: errors.New("no")}, "Greeting"},
		{"never ends its handshake", &polite{opening: errors.New("never")}, "Greeting"},
		{"parts over what is there", &polite{farewell: func(_ []byte, _ error) []byte { return []byte("bye") }}, "Farewell"},
		{"parts with the error only", &polite{farewell: func(dst []byte, err error) []byte { return append(dst, err.Error()...) }}, "Farewell"},
		{"changes what is there", &polite{farewell: func(dst []byte, _ error) []byte { clear(dst); return dst }}, "Farewell"},
		{"drops what is there after a failure", &bitter{}, "Refused"},
	} {
		s := Suite{New: func() codec.Codec { return tt.codec }, Samples: samples(tt.codec), Malformed: [][]byte{[]byte("bitter\n")}}
		if err := s.check(named(t, tt.check)); err == nil {
			t.Errorf("%s: passes %s", tt.name, tt.check)
		}
	}
}

// TestGoodCodecsPass would show a check that fails whatever it is given.
func TestGoodCodecsPass(t *testing.T) {
	for _, c := range []codec.Codec{lines, &broken{Lines: lines}, good{}, &polite{}, &ordinal{}, &mover{}, new(blocks), new(formal), new(receipts),
		codec.Stack{Outer: codec.Length{}, Inner: new(blocks)}, codec.Stack{Outer: new(blocks), Inner: codec.Delimiter{Delim: ";", Max: 900}}} {
		Run(t, func() codec.Codec { return c }, samples(c)...)
	}
}

// Modbus/TCP: the codec writes the length in a header that the frame has.
func TestHeaders(t *testing.T) {
	Run(t, func() codec.Codec {
		return codec.Length{Offset: 4, Size: 2, Strip: codec.StripNone, Max: 260}
	}, []byte{0, 1, 0, 0, 0, 6, 1, 3, 0, 0, 0, 1})
	Run(t, func() codec.Codec { return codec.Length{Offset: 1, Size: 2, Strip: codec.StripNone} })
}

// What happens to long frames only is found, header or not, and the message says what helps if it
// is no fault.
func TestLongFramesAreCompared(t *testing.T) {
	header := codec.Length{Offset: 4, Size: 2, Strip: codec.StripNone, Max: 5000}
	for name, c := range map[string]codec.Codec{
		"lines": decodes(func(_ []byte, n int, frame []byte, err error) (int, []byte, error) {
			return n, wiped(frame, 900), err
		}),
		"a header": wiper{header},
	} {
		s := Suite{New: func() codec.Codec { return c }, Samples: [][]byte{[]byte("\x00\x00\x00\x00\x00\x03abc")}}
		if _, ok := c.(wiper); !ok {
			s.Samples = samples(c)
		}
		err := s.check(named(t, "Limit"))
		if err == nil || !strings.Contains(err.Error(), "Suite.Fill") {
			t.Errorf("%s: %v, want an error that names Suite.Fill", name, err)
		}
	}
}

// wiper wipes the end of long frames.
type wiper struct{ l codec.Length }

func (w wiper) Decode(data []byte) (int, []byte, error) {
	n, frame, err := w.l.Decode(data)
	return n, wiped(frame, 900), err
}

func (w wiper) AppendFrame(dst, frame []byte) ([]byte, error) { return w.l.AppendFrame(dst, frame) }

func wiped(frame []byte, from int) []byte {
	if len(frame) > from {
		clear(frame[from:])
	}
	return frame
}

func TestRefusedWants(t *testing.T) {
	s := Suite{New: func() codec.Codec { return lines }}
	for _, tt := range []struct {
		tooLong, malformed string
		want               bool
	}{
		{tooLong: strings.Repeat("x", 1001), want: true},
		{tooLong: strings.Repeat("x", 1000)},
		{malformed: strings.Repeat("x", 1001)},
	} {
		s.TooLong, s.Malformed = nil, nil
		if tt.tooLong != "" {
			s.TooLong = [][]byte{[]byte(tt.tooLong)}
		} else {
			s.Malformed = [][]byte{[]byte(tt.malformed)}
		}
		if err := s.check(named(t, "Refused")); (err == nil) != tt.want {
			t.Errorf("too long %.9q, malformed %.9q: %v", tt.tooLong, tt.malformed, err)
		}
	}
}

// forgetful skips lines with a mark, but only in one of its two methods.
type forgetful struct {
	resumes bool
	mark    byte
}

func (f forgetful) skip(n int, frame []byte, err error) (int, []byte, error) {
	if len(frame) > 0 && frame[0] == f.mark {
		frame = nil
	}
	return n, frame, err
}

func (f forgetful) Decode(data []byte) (int, []byte, error) {
	n, frame, err := lines.Decode(data)
	if f.resumes {
		return n, frame, err
	}
	return f.skip(n, frame, err)
}

func (f forgetful) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	n, frame, err := lines.DecodeFrom(data, seen)
	if !f.resumes {
		return n, frame, err
	}
	return f.skip(n, frame, err)
}

func (f forgetful) AppendFrame(dst, frame []byte) ([]byte, error) {
	if len(frame) > 0 && frame[0] == f.mark {
		return dst, codec.ErrMalformed
	}
	return lines.AppendFrame(dst, frame)
}

// A mark of one byte is found, whichever it is.
func TestHostileFindsMarks(t *testing.T) {
	for mark := range 256 {
		for _, resumes := range []bool{false, true} {
			c := forgetful{resumes, byte(mark)}
			if mark == 'a' || mark == 'h' || mark == 'x' || mark == '\n' || mark == '\r' {
				continue // the samples begin with it, or it ends a line
			}
			s := Suite{New: func() codec.Codec { return c }, Samples: samples(c)}
			if err := s.check(named(t, "Hostile")); err == nil {
				t.Errorf("mark %#x, in DecodeFrom only: %v: passes", mark, resumes)
			}
		}
	}
}

// What DecodeFrom refuses, Decode must refuse.
func TestRefusedByDecode(t *testing.T) {
	c := refuses{}
	s := Suite{New: func() codec.Codec { return c }, Malformed: [][]byte{[]byte("a rare line\n")}}
	if err := s.check(named(t, "Refused")); err == nil {
		t.Error("passes")
	}
}

// refuses refuses a line in DecodeFrom only.
type refuses struct{}

func (refuses) Decode(data []byte) (int, []byte, error) { return lines.Decode(data) }
func (refuses) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	n, frame, err := lines.DecodeFrom(data, seen)
	if string(frame) == "a rare line" {
		err = codec.ErrMalformed
	}
	return n, frame, err
}

func (refuses) AppendFrame(dst, frame []byte) ([]byte, error) { return lines.AppendFrame(dst, frame) }

func samples(codec.Codec) [][]byte {
	return [][]byte{[]byte("abcx"), {}, []byte("hello, world"), bytes.Repeat([]byte("x"), 300)}
}

func named(t *testing.T, name string) check {
	for _, c := range checks {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no check is called %s", name)
	return check{}
}

// counting remembers the search in itself, although it is not Stateful.
type counting struct {
	codec.Lines
	seen int
}

func (c *counting) Decode(data []byte) (int, []byte, error) {
	n, frame, err := lines.DecodeFrom(data, min(c.seen, len(data)))
	if c.seen = len(data); n > 0 {
		c.seen = 0
	}
	return n, frame, err
}

func (c *counting) DecodeFrom(data []byte, _ int) (int, []byte, error) { return c.Decode(data) }

// sharing is Stateful, but gives the same state to everyone.
type sharing struct{ counting }

func (c *sharing) New() codec.Codec { return &c.counting }

// lateResumer starts one byte after what has been seen.
type lateResumer struct{ codec.Lines }

func (c lateResumer) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	return c.Lines.DecodeFrom(data, min(len(data), seen+1))
}

// rescanner is a Resumer that searches from the start again.
type rescanner struct{ codec.Lines }

func (c rescanner) DecodeFrom(data []byte, _ int) (int, []byte, error) { return c.Decode(data) }

// hoarder takes a frame at its end only, and keeps all before it.
type hoarder struct{ kept []byte }

func (*hoarder) New() codec.Codec { return new(hoarder) }

func (h *hoarder) Decode(data []byte) (int, []byte, error) {
	n := bytes.IndexByte(data, 'x')
	if n < 0 {
		h.kept = append(h.kept, data...)
		return len(data), nil, nil
	}
	frame := append(h.kept, data[:n]...)
	h.kept = nil
	return n + 1, append([]byte{}, frame...), nil
}

func (*hoarder) AppendFrame(dst, frame []byte) ([]byte, error) {
	return append(append(dst, frame...), 'x'), nil
}

// guesser claims that all lines have 5 bytes.
type guesser struct{ codec.Lines }

func (c guesser) FrameSize([]byte) (int, bool) { return 5, true }

// parrot never forgets what it has to say.
type parrot struct{ broken }

func (c *parrot) New() codec.Codec              { return &parrot{broken{Lines: lines}} }
func (c *parrot) AppendReply(dst []byte) []byte { return append(dst, "pong"...) }

// usher greets over what is there, or in spite of an error.
type usher struct {
	broken
	err error
}

func (c *usher) New() codec.Codec { return &usher{broken{Lines: lines}, c.err} }

func (c *usher) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	if c.err == nil {
		dst = nil
	}
	return append(dst, "hello\n"...), 0, c.err
}

func (*usher) Opening() error { return nil }
func (*usher) Opened() error  { return nil }

// polite greets and parts as it may, unless a test has it do otherwise.
type polite struct {
	broken
	opening  error
	farewell func(dst []byte, err error) []byte
}

func (c *polite) New() codec.Codec { return &polite{broken{Lines: lines}, c.opening, c.farewell} }

func (c *polite) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	return append(dst, "hello\n"...), 0, nil
}

func (c *polite) Opening() error { return c.opening }
func (*polite) Opened() error    { return nil }

func (c *polite) AppendFarewell(dst []byte, err error) []byte {
	if c.farewell != nil {
		return c.farewell(dst, err)
	}
	return append(dst, "bye\n"...)
}

// bitter replies as it must not, once it has failed.
type bitter struct {
	broken
	failed bool
}

func (c *bitter) New() codec.Codec { return &bitter{broken: broken{Lines: lines}} }

func (c *bitter) Decode(data []byte) (int, []byte, error) { return c.DecodeFrom(data, 0) }

func (c *bitter) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	n, frame, err := lines.DecodeFrom(data, seen)
	if string(frame) == "bitter" {
		c.failed, err = true, codec.ErrMalformed
	}
	return n, frame, err
}

func (c *bitter) AppendReply(dst []byte) []byte {
	if c.failed {
		return []byte("no\n")
	}
	return dst
}

// delta sends what has changed since the last frame.
type delta struct{ in, out []byte }

func (*delta) New() codec.Codec { return new(delta) }

func (d *delta) Decode(data []byte) (int, []byte, error) {
	n, frame, err := plain.Decode(data)
	if frame == nil || err != nil {
		return n, nil, err
	}
	d.in = xor(frame, d.in)
	return n, d.in, nil
}

func (d *delta) AppendFrame(dst, frame []byte) ([]byte, error) {
	dst, err := plain.AppendFrame(dst, xor(frame, d.out))
	if err == nil {
		d.out = frame // a clone would be right
	}
	return dst, err
}

func xor(p, key []byte) []byte {
	p = append([]byte{}, p...)
	for i := range min(len(p), len(key)) {
		p[i] ^= key[i]
	}
	return p
}

// keepsDst changes what it has appended before.
type keepsDst struct {
	broken
	last []byte
}

func (*keepsDst) New() codec.Codec { return &keepsDst{broken: broken{Lines: lines}} }

func (k *keepsDst) AppendFrame(dst, frame []byte) ([]byte, error) {
	clear(k.last)
	got, err := lines.AppendFrame(dst, frame)
	k.last = got[len(dst):]
	return got, err
}

// good is a codec without any of the optional methods: a 2-byte length.
type good struct{}

var plain = codec.Length{Size: 2, Max: 1000}

func (good) Decode(data []byte) (int, []byte, error)       { return plain.Decode(data) }
func (good) AppendFrame(dst, frame []byte) ([]byte, error) { return plain.AppendFrame(dst, frame) }

// ordinal is Stateful: each frame carries its number, and each is acknowledged.
type ordinal struct {
	in, out uint16
	ack     []byte
}

func (o *ordinal) New() codec.Codec { return new(ordinal) }

func (o *ordinal) Decode(data []byte) (int, []byte, error) {
	n, frame, err := codec.Length{Size: 2, Max: 1002}.Decode(data)
	if frame == nil || err != nil {
		return n, frame, err
	}
	if len(frame) < 2 || binary.BigEndian.Uint16(frame) != o.in {
		return 0, nil, errors.New("a frame is missing")
	}
	o.in++
	o.ack = append(o.ack, frame[:2]...)
	return n, frame[2:], nil
}

func (o *ordinal) AppendFrame(dst, frame []byte) ([]byte, error) {
	numbered := binary.BigEndian.AppendUint16(nil, o.out)
	dst, err := codec.Length{Size: 2, Max: 1002}.AppendFrame(dst, append(numbered, frame...))
	if err == nil {
		o.out++
	}
	return dst, err
}

func (o *ordinal) AppendReply(dst []byte) []byte {
	dst = append(dst, o.ack...)
	o.ack = o.ack[:0]
	return dst
}

// A mover is an ordinal whose state can be saved.
type mover struct {
	ordinal
	fault string
}

func (m *mover) New() codec.Codec { return &mover{fault: m.fault} }

func (m *mover) Save() ([]byte, error) {
	state := binary.BigEndian.AppendUint16(nil, m.in)
	if m.fault == "save counts" {
		m.in++
	}
	return binary.BigEndian.AppendUint16(state, m.out), nil
}

func (m *mover) Restore(state []byte) error {
	if m.fault == "trusts the state" {
		_ = state[3]
	}
	if len(state) != 4 || m.fault == "refuses" {
		return errors.New("not a state")
	}
	if m.fault != "forgets" {
		m.in, m.out = binary.BigEndian.Uint16(state), binary.BigEndian.Uint16(state[2:])
	}
	return nil
}

func TestBrokenSaversFail(t *testing.T) {
	for fault, name := range map[string]string{
		"save counts": "Saved", "refuses": "Saved", "forgets": "Saved", "trusts the state": "SavedHostile",
	} {
		s := Suite{New: func() codec.Codec { return &mover{fault: fault} }, Samples: samples(nil)}
		if err := s.check(named(t, name)); err == nil {
			t.Errorf("%s: passes %s", fault, name)
		}
	}
}

// formal is a mover that needs Open, once, or Restore in place of it.
type formal struct {
	mover
	begun bool
}

func (*formal) New() codec.Codec { return new(formal) }

func (f *formal) begin() {
	if f.begun {
		panic("it has begun already")
	}
	f.begun = true
}

func (f *formal) Open(dst []byte, peer codec.Peer) ([]byte, time.Duration, error) {
	f.begin()
	return fmt.Appendf(dst, "hello %v on %v, %d\n", peer.Remote.String(), peer.Local.String(), peer.TLS.Version), 0, nil
}

func (f *formal) Restore(state []byte) error {
	f.begin()
	return f.mover.Restore(state)
}

func (f *formal) Opening() error { return nil }
func (f *formal) Opened() error  { return nil }

func (f *formal) Decode(data []byte) (int, []byte, error) {
	if !f.begun {
		return 0, nil, errors.New("Open was not called")
	}
	return f.mover.Decode(data)
}

func (f *formal) AppendFrame(dst, frame []byte) ([]byte, error) {
	if !f.begun {
		return dst, errors.New("Open was not called")
	}
	return f.mover.AppendFrame(dst, frame)
}

// receipts answers each frame with 16 bytes.
type receipts struct {
	good
	reply []byte
}

func (*receipts) New() codec.Codec { return new(receipts) }

func (r *receipts) Decode(data []byte) (int, []byte, error) {
	n, frame, err := plain.Decode(data)
	if frame != nil {
		r.reply = append(r.reply, "0123456789abcdef"...)
	}
	return n, frame, err
}

func (r *receipts) AppendReply(dst []byte) []byte {
	dst = append(dst, r.reply...)
	r.reply = r.reply[:0]
	return dst
}

// blocks is an Unpacker of blocks of lines, and a Resumer. Decode returns no frame itself.
type blocks struct{ rest []byte }

func (*blocks) New() codec.Codec { return new(blocks) }

func (b *blocks) Decode(data []byte) (int, []byte, error) { return b.DecodeFrom(data, 0) }

func (b *blocks) DecodeFrom(data []byte, seen int) (int, []byte, error) {
	n, block, err := codec.Delimiter{Delim: "\x00", Max: 1010}.DecodeFrom(data, seen)
	b.rest = append(b.rest, block...)
	return n, nil, err
}

func (b *blocks) NextFrame() ([]byte, error) {
	if len(b.rest) == 0 {
		return nil, nil
	}
	n, frame, err := lines.Decode(b.rest)
	if n == 0 && err == nil {
		err = codec.ErrMalformed
	}
	b.rest = b.rest[n:]
	return frame, err
}

func (*blocks) AppendFrame(dst, frame []byte) ([]byte, error) {
	if bytes.IndexByte(frame, 0) >= 0 {
		return dst, codec.ErrMalformed
	}
	wire, err := lines.AppendFrame(nil, frame)
	if err != nil {
		return dst, err
	}
	return codec.Delimiter{Delim: "\x00", Max: 1010}.AppendFrame(dst, wire)
}
