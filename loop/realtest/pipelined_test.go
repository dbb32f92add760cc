package realtest_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	answerSize = 10 << 10 // of each answer
	noiseSize  = 1 << 10  // of that is what no compression makes shorter
	mostHeap   = 32 << 20 // that those who do not read may cost
	otherWaits = 100 * time.Millisecond
)

// asked returns how many requests are pipelined, and for how long nothing is read.
func asked(dialect string) (n uint32, silence time.Duration) {
	switch {
	case os.Getenv("LOOPWHEEL_SLOW") != "":
		return 40_000, 1500 * time.Millisecond
	case dialect == "deflate": // the race detector makes it dear
		return 1_000, 300 * time.Millisecond
	}
	return 4_000, 300 * time.Millisecond
}

// noise is what no compression makes shorter.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, noiseSize+1<<16)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

// appendAnswer appends the one to request n: it begins with noise.
func appendAnswer(dst []byte, n uint32) []byte {
	from := int(n % (1 << 16))
	dst = binary.BigEndian.AppendUint32(dst, n)
	dst = append(dst, noise()[from:from+noiseSize]...)
	return append(dst, make([]byte, answerSize-noiseSize-4)...)
}

func answer(n uint32) []byte { return appendAnswer(make([]byte, 0, answerSize), n) }

// respond is what an ordinary handler does.
func respond(c *loop.Conn, msg []byte) error { return c.Send(answer(binary.BigEndian.Uint32(msg))) }

// handlers are ways to answer, of which none may lose an answer or hang.
var handlers = map[string]loop.Accept{
	// A handler that knows nothing of backpressure.
	"plain": func(*loop.Conn) loop.Handler { return loop.HandlerFunc(respond) },

	// The recipes of docs/backpressure.md.
	"hooks": func(c *loop.Conn) loop.Handler {
		c.OnHighWater(64<<10, c.PauseRead)
		c.OnFlushed(c.ResumeRead)
		return loop.HandlerFunc(respond)
	},
	"pending": func(c *loop.Conn) loop.Handler {
		c.OnFlushed(c.ResumeRead)
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			err := respond(c, msg)
			if c.Pending() > 64<<10 {
				c.PauseRead()
			}
			return err
		})
	},

	// The answer comes from elsewhere.
	"offload": func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			n := binary.BigEndian.Uint32(msg)
			return loop.Offload(c, func(context.Context) []byte { return answer(n) },
				func(c *loop.Conn, a []byte) { _ = c.Send(a) })
		})
	},
}

// A dialect is how client and server speak: open does the handshake, request appends a message, and
// read returns the next one, which is valid until it is called again.
type dialect struct {
	codec   codec.Codec
	open    func(rw io.ReadWriter) error
	request func(dst []byte, msg []byte) []byte
	read    func(r io.Reader) ([]byte, error)
}

// dialects makes one of each, for one connection.
var dialects = map[string]func() *dialect{"length": lengthDialect, "websocket": wsDialect, "deflate": deflateDialect}

func lengthDialect() *dialect {
	buf := make([]byte, 4+answerSize)
	return &dialect{
		codec: codec.Length{},
		open:  func(io.ReadWriter) error { return nil },
		request: func(dst, msg []byte) []byte {
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(msg))), msg...)
		},
		read: func(r io.Reader) ([]byte, error) {
			_, err := io.ReadFull(r, buf)
			return buf[4:], err
		},
	}
}

func wsDialect() *dialect {
	buf := make([]byte, answerSize)
	return &dialect{
		codec: &websocket.Codec{Binary: true},
		open:  func(rw io.ReadWriter) error { return upgrade(rw) },
		request: func(dst, msg []byte) []byte {
			b := bytes.NewBuffer(dst)
			_ = ws.WriteFrame(b, ws.MaskFrame(ws.NewBinaryFrame(bytes.Clone(msg))))
			return b.Bytes()
		},
		read: func(r io.Reader) ([]byte, error) {
			h, err := ws.ReadHeader(r)
			if err == nil && (h.OpCode != ws.OpBinary || h.Length > answerSize) {
				err = fmt.Errorf("a frame that nobody has asked for: %+v", h)
			}
			if err != nil {
				return nil, err
			}
			_, err = io.ReadFull(r, buf[:h.Length])
			return buf[:h.Length], err
		},
	}
}

// deflateDialect is wsDialect with permessage-deflate: all answers come compressed.
func deflateDialect() *dialect {
	d := wsDialect()
	d.codec = &websocket.Codec{Binary: true, Compress: true}
	d.open = func(rw io.ReadWriter) error { return upgrade(rw, wsflate.DefaultParameters.Option()) }
	plain, msg := d.read, make([]byte, 0, answerSize)
	inflate := flate.NewReader(nil)
	d.read = func(r io.Reader) ([]byte, error) {
		p, err := plain(r)
		if err != nil {
			return nil, err
		}
		tail := []byte("\x00\x00\xff\xff\x01\x00\x00\xff\xff")
		_ = inflate.(flate.Resetter).Reset(io.MultiReader(bytes.NewReader(p), bytes.NewReader(tail)), nil)
		b := bytes.NewBuffer(msg)
		_, err = b.ReadFrom(inflate)
		return b.Bytes(), err
	}
	return d
}

// upgrade shakes hands. An extension that is asked for must be agreed on.
func upgrade(rw io.ReadWriter, extensions ...httphead.Option) error {
	dialer := ws.Dialer{Extensions: extensions}
	br, hs, err := dialer.Upgrade(rw, &url.URL{Scheme: "ws", Host: "localhost", Path: "/"})
	if err == nil && (br != nil || len(hs.Extensions) != len(extensions)) {
		err = fmt.Errorf("agreed on %v of %v", hs.Extensions, extensions)
	}
	return err
}

// requests returns so many at once.
func (d *dialect) requests(count uint32) (all []byte) {
	for n := range count {
		all = d.request(all, binary.BigEndian.AppendUint32(nil, n))
	}
	return all
}

// readAnswers reads all answers and checks them.
func (d *dialect) readAnswers(t *testing.T, r io.Reader, count uint32) {
	want := make([]byte, 0, answerSize)
	for n := range count {
		got, err := d.read(r)
		if err != nil {
			t.Errorf("answer %d: %v", n, err)
			return
		}
		if want = appendAnswer(want[:0], n); !bytes.Equal(got, want) {
			t.Errorf("answer %d is another one", n)
			return
		}
	}
}

// A client asks many times without reading for a while, then reads. Everything arrives in order,
// the process needs little memory, and another client of the same loop is answered meanwhile.
func TestPipelinedRequests(t *testing.T) {
	testkit.NeedSlow(t, "it takes 8 s")
	for _, c := range []struct{ handler, dialect, network string }{
		{"plain", "length", "tcp"}, {"plain", "length", "unix"},
		{"hooks", "length", "tcp"}, {"pending", "length", "tcp"}, {"offload", "length", "tcp"},
		{"plain", "websocket", "tcp"}, {"plain", "deflate", "tcp"},
	} {
		t.Run(c.handler+", "+c.dialect+" over "+c.network, func(t *testing.T) {
			tries(t, func(t *testing.T) (waited time.Duration, heap uint64) {
				return pipelined(t, c.network, c.handler, c.dialect)
			})
		})
	}
}

func pipelined(t *testing.T, network, handler, dialect string) (waited time.Duration, heap uint64) {
	accept, d := handlers[handler], dialects[dialect]()
	addr := "tcp://127.0.0.1:0"
	if network == "unix" {
		addr = "unix://" + testkit.SocketPath(t)
	}
	srv := &loop.Server{Addr: addr, NumLoops: 1, Codec: d.codec, Accept: accept,
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Raw{},
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}}}
	start(t, srv)
	c, other := dial(t, srv.Addrs()[0]), dial(t, srv.Addrs()[1])
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	_ = other.SetDeadline(time.Now().Add(2 * time.Minute))
	if err := d.open(c); err != nil {
		t.Fatal(err)
	}
	mustEcho(t, other, "x")
	count, silence := asked(dialect)
	requests := d.requests(count)
	peak, p := heapPeak(t, mostHeap), startProber(other)
	go func() { _, _ = c.Write(requests) }()
	time.Sleep(silence) // the client does not read for so long: that is what is tested
	d.readAnswers(t, c, count)
	waited = p.verdict(t)
	heap = peak()
	t.Logf("the heap grew to %d MiB", heap>>20)
	if st := srv.Stats(); st.Closed != 0 {
		t.Errorf("%d connections were closed", st.Closed)
	}
	return waited, heap
}
