package resp

import (
	"math"

	"github.com/loopwheel/loopwheel/codec"
)

// DefaultMaxReply is Client.MaxReply, in bytes, if that is zero.
const DefaultMaxReply = 1 << 30

// A Client is the codec of a client's connections: it decodes replies, and AppendFrame takes
// requests. A frame is one whole reply, however deep it is, which Parse makes values of. It is a
// codec.Stateful. The zero Client takes replies of up to 1 GiB.
type Client struct {
	// MaxReply is the length of the longest reply on the wire, in bytes, and of the longest request
	// that Conn.Send takes. 0 means DefaultMaxReply.
	MaxReply int
}

// New returns the codec of one connection. Any goroutine may call it.
func (c Client) New() codec.Codec { return &replies{max: or(c.MaxReply, DefaultMaxReply)} }

// Decode returns ErrNoConn.
func (c Client) Decode([]byte) (int, []byte, error) { return 0, nil, ErrNoConn }

// AppendFrame returns ErrNoConn.
func (c Client) AppendFrame(dst, _ []byte) ([]byte, error) { return dst, ErrNoConn }

// Validate implements codec.Validator.
func (c Client) Validate() error { return validate("Client", []field{{"MaxReply", c.MaxReply}}) }

// replies is the codec of one connection of a client.
type replies struct {
	max     int
	skipper skipper
}

// Decode implements codec.Codec.
func (r *replies) Decode(data []byte) (advance int, frame []byte, err error) {
	return r.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer.
func (r *replies) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	if seen == 0 {
		r.skipper.busy = false
	}
	n, err := r.skipper.skip(data, r.max)
	if n == 0 || err != nil {
		return 0, nil, err
	}
	return n, data[:n], nil
}

// FrameSize implements codec.Sizer, with a bound.
func (r *replies) FrameSize([]byte) (size int, exact bool) { return r.max, false }

// AppendFrame implements codec.Codec: frame is one request, as AppendCommand writes it, or inline.
// Another frame is codec.ErrMalformed, and one that is longer than Client.MaxReply is
// codec.ErrTooLong.
func (r *replies) AppendFrame(dst, frame []byte) ([]byte, error) {
	if len(frame) > r.max {
		return dst, tooLong("too big request")
	}
	n, request, err := Server{MaxRequest: math.MaxInt}.New().Decode(frame)
	switch {
	case err != nil:
		return dst, err
	case n != len(frame) || request == nil:
		return dst, malformed("a frame must be one whole request")
	}
	return append(dst, frame...), nil
}

var (
	_ codec.Stateful  = Client{}
	_ codec.Validator = Client{}
	_ codec.Resumer   = (*replies)(nil)
	_ codec.Sizer     = (*replies)(nil)
)
