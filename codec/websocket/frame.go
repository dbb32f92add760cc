package websocket

import (
	"encoding/binary"
	"math"

	"github.com/gobwas/ws"
)

// sink lets what wants an io.Writer append to a slice.
type sink struct{ data []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.data = append(s.data, p...)
	return len(p), nil
}

// parseHeader returns the header at the start of data and its length, or 0 if it is not all there.
// ws.ReadHeader and WriteHeader do the same by way of io.Reader and io.Writer, and allocate for it:
// that was a third of what an empty frame costs.
func parseHeader(data []byte) (h ws.Header, n int, err error) {
	if len(data) < ws.MinHeaderSize {
		return h, 0, nil
	}
	h.Fin = data[0]&0x80 != 0
	h.Rsv = data[0] >> 4 & 7
	h.OpCode = ws.OpCode(data[0] & 0x0f)
	h.Masked = data[1]&0x80 != 0
	h.Length = int64(data[1] & 0x7f)
	switch n = ws.MinHeaderSize; h.Length {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if h.Masked {
		n += len(h.Mask)
	}
	if len(data) < n {
		return h, 0, nil
	}
	switch h.Length {
	case 126:
		h.Length = int64(binary.BigEndian.Uint16(data[2:]))
	case 127:
		h.Length = int64(binary.BigEndian.Uint64(data[2:]))
	}
	if h.Length < 0 {
		return h, n, violation(StatusProtocolError, "%w", ws.ErrHeaderLengthMSB)
	}
	if h.Masked {
		copy(h.Mask[:], data[n-len(h.Mask):n])
	}
	return h, n, nil
}

// check returns an error if a frame with this header, of n bytes, must not come now (RFC 6455
// sections 5.2 to 5.5).
func (c *connCodec) check(h ws.Header, n int) error {
	state := ws.StateServerSide
	if c.config.masked != 0 {
		state = ws.StateClientSide
	}
	if c.fragmented {
		state = state.Set(ws.StateFragmented)
	}
	checked := h
	if c.deflate && h.Rsv1() && (h.OpCode == ws.OpText || h.OpCode == ws.OpBinary) {
		checked.Rsv = ws.Rsv(false, h.Rsv2(), h.Rsv3()) // RFC 7692 section 6: the first frame of a message only
	}
	if err := ws.CheckHeader(checked, state); err != nil {
		return violation(StatusProtocolError, "%w", err)
	}
	if n != ws.HeaderSize(h) {
		return violation(StatusProtocolError, "a length of %d that is not in its shortest form", h.Length)
	}
	if h.OpCode.IsControl() {
		return nil
	}
	return c.checkLength(h)
}

// checkLength refuses a data frame that is too long, or makes its message so, as soon as its header
// is there.
func (c *connCodec) checkLength(h ws.Header) error {
	before, compressed := 0, h.Rsv1()
	if c.fragmented {
		before, compressed = len(c.message), c.compressed
	}
	slack := 0
	if compressed {
		slack = c.config.maxMessage()/256 + 64 // what does not compress becomes a little longer; inflate looks at the real length
	}
	if limit := with(c.config.maxFrame(), slack); h.Length > int64(limit) {
		return tooBig("frame", uint64(h.Length), limit)
	}
	if limit := with(c.config.maxMessage(), slack); h.Length > int64(limit-before) {
		return tooBig("message", uint64(h.Length)+uint64(before), limit)
	}
	return nil
}

// with returns a limit with slack, but none beyond which the size of a frame is no int.
func with(limit, slack int) int {
	const most = math.MaxInt - ws.MaxHeaderSize
	return min(limit, most-slack) + slack
}

// appendFrame appends a final frame, masked if this is the client's side.
func (c *connCodec) appendFrame(dst []byte, op ws.OpCode, rsv byte, payload []byte) []byte {
	masked := c.config.masked
	dst = append(dst, 0x80|rsv<<4|byte(op))
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, masked|byte(n))
	case n <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, masked|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, masked|127), uint64(n))
	}
	if masked != 0 {
		return appendMasked(dst, payload)
	}
	return append(dst, payload...)
}
