// Package codectest tests any implementation of codec.Codec against its contract.
//
//	func TestConformance(t *testing.T) {
//		codectest.Run(t, func() codec.Codec { return mycodec.New() }, []byte("hello"), []byte(""))
//	}
//
// Frames are fed whole, byte by byte, in random pieces, and several at once, directly and through
// the decoder of package loop, mixed, and cut off. The decoded frames must equal the encoded ones,
// up to the limit; a longer frame must be refused. The codec must not retain, change or return
// anything that the contract forbids, and no method of an embedded codec may bypass its own. A
// codec.Saver is moved after each piece, and is given damaged states. A frame that contains the
// codec's own marks, such as a delimiter, must stay one frame or be refused.
package codectest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"runtime/debug"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// Run checks the codec that newCodec returns, with the samples as frames. It is Suite.Run with
// default settings.
func Run(t *testing.T, newCodec func() codec.Codec, samples ...[]byte) {
	t.Helper()
	_, unframed := newCodec().(codec.Raw)
	Suite{New: newCodec, Samples: samples, Unframed: unframed}.Run(t)
}

// A Suite configures the checks of a codec. Only New is required.
type Suite struct {
	// New returns the codec as a server would get it. It is called for each check. A codec.Opener is
	// opened with addresses and TLS, without Await and NetConn. If its protocol begins with a
	// handshake, New must return a codec whose connections have done it already.
	New func() codec.Codec

	// Peer returns the codec of the other end, whose AppendFrame encodes the bytes that New's codec
	// decodes. nil means New. Set it for protocols whose two ends differ.
	Peer func() codec.Codec

	// Samples are frames that the codec must be able to encode. If there are none, frames of Fill
	// are used.
	Samples [][]byte

	// Fill returns a frame of n bytes with any contents, or nil if no frame can have that length.
	// nil means the byte 'x', n times, except for up to 32 bytes at the start that the codec
	// writes itself, as codec.Length does with codec.StripNone.
	Fill func(n int) []byte

	// Max is the length of the longest frame that the codec accepts. 0 means to determine it by
	// trial, which fails for a codec that accepts 16 MiB.
	Max int

	// TooLong and Malformed are encoded bytes that the codec must refuse with codec.ErrTooLong and
	// codec.ErrMalformed, respectively.
	TooLong, Malformed [][]byte

	// Parts returns frame in at least three parts, each encoded as the peer sends it. The codec
	// must return frame after the last part, and nothing before it. The second part can be
	// repeated, and makes the message longer. Parts may be nil or return no parts if the protocol
	// has none. It is for a codec.Assembler, and is called for the samples and for the results of
	// Fill.
	Parts func(frame []byte) [][]byte

	// Unframed states that the codec, like codec.Raw, preserves only the bytes, not the boundaries
	// between frames.
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
	{"Promoted", promoted},
	{"Greeting", greeting},
	{"Farewell", farewell},
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
		s.Fill = s.fill
	}
	if len(s.Samples) == 0 {
		s.Samples = s.filled()
	}
	return c.run(&s)
}

// longestHeader is how many bytes at the start of a frame may be the codec's to write.
const longestHeader = 32

// fill is the default of Fill: 'x', n times, with the header that the codec has made of the first of
// them. Changes after the header are not taken over: they are for the checks to find.
func (s *Suite) fill(n int) []byte {
	plain := bytes.Repeat([]byte("x"), n)
	wire, err := encode(begin(s.Peer()), nil, plain)
	if err != nil {
		return plain
	}
	d := newDriver(s.New(), false)
	if d.feed(wire) != nil || len(d.frames) != 1 || len(d.frames[0]) != n {
		return plain
	}
	header := min(n, longestHeader)
	return append(d.frames[0][:header:header], plain[header:]...)
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

// begin returns the codec of one new connection, which has got its peer.
func begin(c codec.Codec) codec.Codec {
	c = connection(c)
	_ = open(c) // a codec that needs Await refuses, and the other checks go on
	return c
}

// open calls Open, if there is one.
func open(c codec.Codec) (err error) {
	if o, ok := c.(codec.Opener); ok {
		_, _, err = o.Open(nil, remote())
	}
	return err
}

// remote returns a peer as a server knows it.
func remote() codec.Peer {
	loopback := net.IPv4(127, 0, 0, 1)
	return codec.Peer{
		Remote: &net.TCPAddr{IP: loopback, Port: 40001}, Local: &net.TCPAddr{IP: loopback, Port: 443},
		TLS: new(tls.ConnectionState),
	}
}

// wire returns the samples as the peer sends them over one connection, one after the other.
func (s *Suite) wire(samples ...[]byte) (wire []byte, err error) {
	peer := begin(s.Peer())
	for i, frame := range samples {
		if wire, err = encode(peer, wire, frame); err != nil {
			return nil, fmt.Errorf("AppendFrame refuses sample %d, %s: %w", i, show(frame), err)
		}
	}
	return wire, nil
}

// encode calls AppendFrame with a copy of frame, and ruins the copy afterwards: a codec that has kept
// it gives itself away.
func encode(c codec.Codec, dst, frame []byte) ([]byte, error) {
	given := clone(frame)
	wire, err := c.AppendFrame(dst, given)
	ruin(given)
	return wire, err
}

// accepts returns the error of AppendFrame, if any.
func (s *Suite) accepts(frame []byte) error {
	_, err := encode(begin(s.Peer()), nil, frame)
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
