// Package codectest tests any implementation of codec.Codec against its contract.
//
//	func TestConformance(t *testing.T) {
//		codectest.Run(t, func() codec.Codec { return mycodec.New() }, []byte("hello"), []byte(""))
//	}
//
// Frames are fed whole, byte by byte, in random pieces and several at once, directly and through a
// framing.Decoder, mixed up and cut off; what comes out must be what was put in, at every length up
// to the limit and none above it, and nothing may be kept, changed or returned that the contract
// forbids. A codec.Saver moves after each piece, and is given states that are damaged. Frames with
// the codec's own marks in them, such as a delimiter, must stay one frame or be refused.
package codectest

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// Run checks the codec that newCodec returns, with the samples as frames. It is Suite.Run with the
// defaults.
func Run(t *testing.T, newCodec func() codec.Codec, samples ...[]byte) {
	t.Helper()
	_, unframed := newCodec().(codec.Raw)
	Suite{New: newCodec, Samples: samples, Unframed: unframed}.Run(t)
}

// A Suite says how a codec is to be checked. Only New must be set.
type Suite struct {
	// New returns the codec as a server would be given it. It is called for each check.
	New func() codec.Codec

	// Peer returns the codec of the other end, whose AppendFrame makes the bytes that New's codec
	// decodes. nil means New. It is for protocols whose two ends speak differently.
	Peer func() codec.Codec

	// Samples are frames that the codec must be able to send. Those made by Fill are used if there
	// are none.
	Samples [][]byte

	// Fill returns a frame of n bytes, whatever its contents, or nil if there can be none of that
	// length. nil means the byte 'x', n times.
	Fill func(n int) []byte

	// Max is the length of the longest frame that the codec takes. 0 means to find out by trial,
	// which fails for a codec that takes 16 MiB.
	Max int

	// TooLong and Malformed are bytes on the wire that the codec must refuse with codec.ErrTooLong
	// and codec.ErrMalformed.
	TooLong, Malformed [][]byte

	// Parts returns frame in three parts or more, each as the peer sends it: what comes of all of
	// them is frame, and nothing before the last one. The second may come again and again, and
	// makes the message longer. nil, or no parts, means that there is no such thing. It is for a
	// codec.Assembler, and asked for the samples and for what Fill makes.
	Parts func(frame []byte) [][]byte

	// Unframed says that the codec, like codec.Raw, does not keep the boundaries between frames,
	// only the bytes.
	Unframed bool
}

// Run runs each check as a subtest of t.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if s.New == nil {
		t.Fatal("codectest: Suite.New is nil")
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := s.check(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// A check is one property of the contract. It returns how the codec breaks it.
type check struct {
	name string
	run  func(s *Suite) error
}

var checks = []check{
	{"Configuration", configuration},
	{"Greeting", greeting},
	{"Alone", alone},
	{"Together", together},
	{"ByteByByte", byteByByte},
	{"RandomPieces", randomPieces},
	{"Decoder", throughDecoder},
	{"Resume", resume},
	{"FrameSize", frameSize},
	{"Parts", parts},
	{"PartsFlood", partsFlood},
	{"Saved", saved},
	{"SavedHostile", savedHostile},
	{"AppendFrame", appendFrame},
	{"Limit", limits},
	{"Refused", refused},
	{"Flood", flood},
	{"Memory", memory},
	{"Hostile", hostile},
	{"Payloads", payloads},
	{"Interleaved", interleaved},
	{"Concurrent", concurrent},
}

// check runs c with the defaults filled in; a panic is a failure like any other.
func (s Suite) check(c check) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if s.Peer == nil {
		s.Peer = s.New
	}
	if s.Fill == nil {
		s.Fill = func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	}
	if len(s.Samples) == 0 {
		s.Samples = s.filled()
	}
	return c.run(&s)
}

// filled returns frames made by Fill, of those lengths that the codec takes.
func (s *Suite) filled() (samples [][]byte) {
	for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 16, 100, 127, 128, 300, 1000} {
		if frame := s.Fill(n); frame != nil && s.accepts(frame) == nil {
			samples = append(samples, frame)
		}
	}
	return samples
}

// connection returns the codec of one new connection.
func connection(c codec.Codec) codec.Codec {
	if s, ok := c.(codec.Stateful); ok {
		return s.New()
	}
	return c
}

// wire returns the samples as the peer sends them over one connection, one after the other.
func (s *Suite) wire(samples ...[]byte) (wire []byte, err error) {
	peer := connection(s.Peer())
	for i, frame := range samples {
		if wire, err = peer.AppendFrame(wire, frame); err != nil {
			return nil, fmt.Errorf("AppendFrame refuses sample %d, %s: %w", i, show(frame), err)
		}
	}
	return wire, nil
}

// accepts returns the error of AppendFrame, if any.
func (s *Suite) accepts(frame []byte) error {
	_, err := connection(s.Peer()).AppendFrame(nil, frame)
	return err
}

// same says how the frames got differ from those wanted.
func (s *Suite) same(got, want [][]byte) error {
	if s.Unframed {
		got, want = [][]byte{bytes.Join(got, nil)}, [][]byte{bytes.Join(want, nil)}
	}
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i], want[i]) {
			return fmt.Errorf("frame %d of %d is %s, want %s", i, len(want), show(got[i]), show(want[i]))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d frames, want %d", len(got), len(want))
	}
	return nil
}

// show quotes a frame, or the beginning of a long one.
func show(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%.40q... (%d bytes)", b, len(b))
	}
	return fmt.Sprintf("%q", b)
}
