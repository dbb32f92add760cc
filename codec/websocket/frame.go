package websocket

import (
	"io"

	"github.com/gobwas/ws"
)

// source lets ws.ReadHeader read from a slice, without a reader being made for each frame.
type source struct{ data []byte }

func (s *source) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	return n, nil
}

// sink lets ws.WriteHeader append to a slice.
type sink struct{ data []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.data = append(s.data, p...)
	return len(p), nil
}

// header returns the header at the start of data and its length, or 0 if it is not all there.
func (c *Conn) header(data []byte) (h ws.Header, n int, err error) {
	if len(data) < ws.MinHeaderSize {
		return h, 0, nil
	}
	c.src.data = data
	h, err = ws.ReadHeader(&c.src)
	n = len(data) - len(c.src.data)
	c.src.data = nil
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return h, 0, nil
	case err != nil:
		return h, n, violation(StatusProtocolError, "%w", err)
	}
	return h, n, nil
}

// check returns an error if a frame with this header, of n bytes, must not come now (RFC 6455 sections 5.2 to 5.5).
func (c *Conn) check(h ws.Header, n int) error {
	state := ws.StateServerSide
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

// checkLength refuses a data frame that is too long, or makes its message so, as soon as its header is there.
func (c *Conn) checkLength(h ws.Header) error {
	before, compressed := 0, h.Rsv1()
	if c.fragmented {
		before, compressed = len(c.message), c.compressed
	}
	slack := 0
	if compressed {
		slack = c.config.maxMessage()/256 + 64 // what does not compress becomes a little longer; inflate looks at the real length
	}
	if limit := c.config.maxFrame() + slack; h.Length > int64(limit) {
		return tooBig("frame", clamp(h.Length), limit)
	}
	if limit := c.config.maxMessage() + slack; h.Length > int64(limit-before) {
		return tooBig("message", clamp(h.Length)+before, limit)
	}
	return nil
}

// clamp is for error messages.
func clamp(n int64) int { return int(min(n, 1<<31-1)) }

// appendFrame appends a final frame.
func (c *Conn) appendFrame(dst []byte, op ws.OpCode, rsv byte, payload []byte) []byte {
	c.dst.data = dst
	_ = ws.WriteHeader(&c.dst, ws.Header{Fin: true, Rsv: rsv, OpCode: op, Length: int64(len(payload))})
	dst = append(c.dst.data, payload...)
	c.dst.data = nil
	return dst
}
