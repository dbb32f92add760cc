package websocket

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
)

// maxWindow is deflate's own window, in bits.
const maxWindow = 15

// negotiate answers offers of permessage-deflate, RFC 7692 section 7.1. The first one that makes
// sense is taken; others are declined and harm nothing (section 5.1). ok is false if lines are no
// list of extensions.
func (c *connCodec) negotiate(lines []string) (answer string, ok bool) {
	if !c.config.Compress || len(lines) == 0 {
		return "", true
	}
	offers, ok := httphead.ParseOptions([]byte(strings.Join(lines, ",")), nil)
	for _, offer := range offers {
		asked, ok := parseDeflate(offer)
		if !ok {
			continue
		}
		c.deflate, c.window = true, maxWindow
		answer = wsflate.ExtensionName + "; server_no_context_takeover; client_no_context_takeover"
		if bits := asked.ServerMaxWindowBits; bits.Defined() {
			c.window = byte(bits)
			answer += fmt.Sprintf("; server_max_window_bits=%d", bits)
		}
		break
	}
	return answer, ok
}

// parseDeflate parses an offer or an answer. wsflate takes parameters that occur twice, and numbers
// with leading zeros (RFC 7692 section 7.1.2).
func parseDeflate(o httphead.Option) (p wsflate.Parameters, ok bool) {
	ok = string(o.Name) == wsflate.ExtensionName && p.Parse(o) == nil
	seen := make(map[string]bool)
	o.Parameters.ForEach(func(key, value []byte) bool {
		ok = ok && !seen[string(key)] && (len(value) == 0 || value[0] != '0')
		seen[string(key)] = true
		return ok
	})
	return p, ok
}

const (
	minShrink = 4 << 10   // a buffer that is not worth exchanging
	maxKept   = 128 << 10 // the largest that a deflater or inflater keeps
	maxPieces = 8         // of a message, for a peer with a small window: each costs about 1.4 µs more
)

// flushEnd is what a flush ends with and the wire leaves out, RFC 7692 section 7.2.1.
var flushEnd = []byte("\x00\x00\xff\xff")

// A deflater is shared by connections, one after the other: it is large, and needed only while a
// message is compressed.
type deflater struct {
	compressor *flate.Writer
	sink       sink
}

var deflaters = sync.Pool{New: func() any {
	f, _ := flate.NewWriter(nil, flate.BestSpeed) // an error is a level that does not exist
	return &deflater{compressor: f}
}}

// deflate leaves the compressed form of payload in d.sink. The compressor's window cannot be
// chosen, so for a smaller one each piece as long as that is compressed for itself: nothing refers
// further back.
func (d *deflater) deflate(payload []byte, window byte) error {
	d.sink.data = d.sink.data[:0]
	d.compressor.Reset(&d.sink)
	for window < maxWindow && len(payload) > 1<<window {
		if _, err := d.compressor.Write(payload[:1<<window]); err != nil {
			return err
		}
		if err := d.compressor.Flush(); err != nil {
			return err
		}
		d.compressor.Reset(&d.sink)
		payload = payload[1<<window:]
	}
	if _, err := d.compressor.Write(payload); err != nil {
		return err
	}
	if err := d.compressor.Flush(); err != nil {
		return err
	}
	d.sink.data = bytes.TrimSuffix(d.sink.data, flushEnd)
	return nil
}

// appendDeflated appends a compressed frame, or a plain one if that is shorter.
func (c *connCodec) appendDeflated(dst []byte, op ws.OpCode, payload []byte) ([]byte, error) {
	if len(payload) > maxPieces<<c.window {
		return c.appendFrame(dst, op, 0, payload), nil
	}
	d := deflaters.Get().(*deflater)
	defer d.release()
	if err := d.deflate(payload, c.window); err != nil {
		return dst, err
	}
	if len(d.sink.data) >= len(payload) {
		return c.appendFrame(dst, op, 0, payload), nil
	}
	return c.appendFrame(shrink(dst, len(d.sink.data)), op, ws.Rsv(true, false, false), d.sink.data), nil
}

// shrink returns dst, or an empty slice of its own if dst is empty and far larger than n bytes
// need: room was made for the message as it was, and its few bytes would keep all of that for as
// long as they wait for their peer.
func shrink(dst []byte, n int) []byte {
	if n += ws.MaxHeaderSize; len(dst) > 0 || cap(dst) <= minShrink || cap(dst) <= 4*n {
		return dst
	}
	return make([]byte, 0, n)
}

func (d *deflater) release() {
	if cap(d.sink.data) > maxKept {
		d.sink.data = nil
	}
	deflaters.Put(d)
}

// inflateEnd follows what is on the wire: flushEnd, RFC 7692 section 7.2.2, and an empty last block.
var inflateEnd = []byte("\x00\x00\xff\xff" + "\x01\x00\x00\xff\xff")

// An inflater is shared like a deflater.
type inflater struct {
	reader io.ReadCloser // a flate.Resetter
	src    source
	out    []byte
}

// A source is a compressed message, and then inflateEnd.
type source struct{ message, end bytes.Reader }

// ReadByte implements io.ByteReader, so flate reads no further than it must.
func (s *source) ReadByte() (byte, error) {
	if s.message.Len() > 0 {
		return s.message.ReadByte()
	}
	return s.end.ReadByte()
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.message.Len() > 0 {
		return s.message.Read(p)
	}
	return s.end.Read(p)
}

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.reader = flate.NewReader(&i.src)
	return i
}}

// inflate returns the decompressed message, of at most limit bytes. Input may become a thousand
// times as large, so no more than a byte above the limit is ever made of it.
func inflate(data []byte, limit int) (message []byte, err error) {
	if len(data) == 0 { // as some send an empty message
		return []byte{}, nil
	}
	i := inflaters.Get().(*inflater)
	defer i.release()
	i.src.message.Reset(data)
	end := inflateEnd
	if bytes.HasSuffix(data, flushEnd) { // some leave it there
		end = end[len(flushEnd):]
	}
	i.src.end.Reset(end)
	_ = i.reader.(flate.Resetter).Reset(&i.src, nil) // it has no error
	most := max(limit, limit+1)                      // not limit+1 if that overflows
	for i.out = i.out[:0]; ; {
		if len(i.out) == cap(i.out) { // slices.Grow would pass maxKept, and nothing were kept
			i.out = append(make([]byte, 0, max(minShrink, 2*len(i.out))), i.out...)
		}
		n, err := i.reader.Read(i.out[len(i.out):min(cap(i.out), most)])
		i.out = i.out[:len(i.out)+n]
		switch {
		case len(i.out) > limit:
			return nil, tooBig("decompressed message", len(i.out), limit)
		case err == io.EOF && i.src.hasMore():
			return nil, violation(StatusInvalidData, "a compressed message with data after its final block")
		case err == io.EOF && i.src.end.Len() != 0 && i.src.end.Len() != len(end):
			return nil, violation(StatusInvalidData, "a compressed message that is cut off")
		case err == io.EOF:
			return append(make([]byte, 0, len(i.out)), i.out...), nil
		case err != nil:
			return nil, violation(StatusInvalidData, "a compressed message: %w", err)
		}
	}
}

// hasMore reports whether a message goes on after a block that says it is the last. The empty block
// of RFC 7692 section 7.2.3.5 is no more than that block's end.
func (s *source) hasMore() bool {
	if s.message.Len() == 1 {
		b, _ := s.message.ReadByte()
		return b != 0
	}
	return s.message.Len() > 0
}

func (i *inflater) release() {
	i.src.message.Reset(nil)
	if cap(i.out) > maxKept {
		i.out = nil
	}
	inflaters.Put(i)
}
