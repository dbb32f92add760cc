package websocket

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
)

// lenient makes offers that make no sense declined, in place of refusing the handshake: RFC 7692 section 5.1.
func lenient[Option any](negotiate func(Option) (Option, error)) func(Option) (Option, error) {
	return func(offer Option) (answer Option, err error) {
		if accepted, err := negotiate(offer); err == nil {
			return accepted, nil
		}
		return answer, nil
	}
}

// A deflater is shared by connections, one after the other: it is large, and needed only while a message is compressed.
type deflater struct {
	writer *wsflate.Writer
	sink   sink
}

var deflaters = sync.Pool{New: func() any {
	d := new(deflater)
	d.writer = wsflate.NewWriter(&d.sink, func(w io.Writer) wsflate.Compressor {
		f, _ := flate.NewWriter(w, flate.BestSpeed) // an error is a level that does not exist
		return f
	})
	return d
}}

// appendDeflated appends a compressed frame, or a plain one if that is shorter.
func (c *Conn) appendDeflated(dst []byte, op ws.OpCode, payload []byte) ([]byte, error) {
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.sink.data = d.sink.data[:0]
	d.writer.Reset(&d.sink)
	_, err := d.writer.Write(payload)
	if err == nil {
		err = d.writer.Flush()
	}
	if err != nil {
		return dst, err
	}
	if len(d.sink.data) >= len(payload) {
		return c.appendFrame(dst, op, 0, payload), nil
	}
	return c.appendFrame(dst, op, ws.Rsv(true, false, false), d.sink.data), nil
}

// An inflater is shared like a deflater.
type inflater struct {
	reader *wsflate.Reader
	src    bytes.Reader
}

// resetter gives flate's reader the method by which wsflate resets it.
type resetter struct{ io.ReadCloser }

func (r resetter) Reset(src io.Reader) { _ = r.ReadCloser.(flate.Resetter).Reset(src, nil) }

var inflaters = sync.Pool{New: func() any {
	i := new(inflater)
	i.reader = wsflate.NewReader(&i.src, func(r io.Reader) wsflate.Decompressor {
		return resetter{flate.NewReader(r)}
	})
	return i
}}

// inflate returns the decompressed message, of at most limit bytes: what a peer sends may become a thousand times
// as large.
func inflate(data []byte, limit int) ([]byte, error) {
	i := inflaters.Get().(*inflater)
	defer inflaters.Put(i)
	i.src.Reset(data)
	i.reader.Reset(&i.src)
	message, err := io.ReadAll(io.LimitReader(i.reader, int64(limit)+1))
	i.src.Reset(nil)
	switch {
	case err != nil:
		return nil, violation(StatusInvalidData, "a compressed message: %w", err)
	case len(message) > limit:
		return nil, tooBig("decompressed message", len(message), limit)
	}
	return message, nil
}
