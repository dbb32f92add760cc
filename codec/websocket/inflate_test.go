package websocket_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A bitWriter writes a deflate stream by hand.
type bitWriter struct {
	out  []byte
	next byte
	n    int
}

// bits writes the lowest n bits of v, from the lowest one on.
func (w *bitWriter) bits(v, n int) {
	for i := range n {
		w.next |= byte(v>>i&1) << w.n
		if w.n++; w.n == 8 {
			w.out = append(w.out, w.next)
			w.next, w.n = 0, 0
		}
	}
}

// code writes a Huffman code of n bits, from the highest one on.
func (w *bitWriter) code(v, n int) {
	for i := range n {
		w.bits(v>>(n-1-i), 1)
	}
}

// longCodes writes an empty block that defines codes of 1 to 15 bits.
func (w *bitWriter) longCodes() {
	w.bits(0b10<<1, 3)
	w.bits(0, 10)
	w.bits(15, 4)
	for _, symbol := range []int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15} {
		if symbol == 0 || symbol == 16 || symbol == 17 {
			w.bits(0, 3)
		} else {
			w.bits(4, 3)
		}
	}
	w.code(15, 4) // 18: zeros
	w.bits(138-11, 7)
	w.code(15, 4)
	w.bits(103-11, 7)
	for n := 15; n > 0; n-- {
		w.code(n-1, 4)
		if n == 15 {
			w.code(n-1, 4)
		}
	}
	w.code(0, 4) // the only distance
	w.bits(0, 1) // end of block
}

// shortCodes writes the shortest block that defines codes.
func (w *bitWriter) shortCodes() {
	w.bits(0b10<<1, 3)
	w.bits(0, 10)
	w.bits(14, 4)
	for i := range 18 {
		if i == 2 || i == 17 { // 18 and 1
			w.bits(1, 3)
		} else {
			w.bits(0, 3)
		}
	}
	w.code(1, 1) // 18: zeros
	w.bits(138-11, 7)
	w.code(1, 1)
	w.bits(118-11, 7)
	w.code(0, 1)
	w.code(0, 1)
	w.bits(0, 1) // end of block
}

// hostile returns compressed messages of about size bytes that take more work than they have
// output.
func hostile(size int) map[string]string {
	messages := make(map[string]string)
	for name, block := range map[string]func(w *bitWriter){
		"long codes":  (*bitWriter).longCodes,
		"short codes": (*bitWriter).shortCodes,
		"fixed codes": func(w *bitWriter) { w.bits(0b01<<1, 10) },
		"stored":      func(w *bitWriter) { w.bits(0, 8); w.bits(0xffff<<16, 32) },
	} {
		var w bitWriter
		for len(w.out) < size-50 {
			block(&w)
		}
		w.bits(0, 3) // the header of the block that the flush ends with
		w.bits(0, 7)
		messages[name] = string(w.out)
	}
	return messages
}

// Inflating takes time in proportion to the length of the message, whatever it contains: a byte of
// hostile input takes at most ten times as long as a byte of text, and allocates nothing.
func TestHostileBlocks(t *testing.T) {
	const size = 60_000
	letters := make([]byte, size)
	r := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	for i := range letters {
		letters[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[r.IntN(36)]
	}
	// cost returns the time and the bytes allocated for a byte of input, or of output if that is more.
	cost := func(payload string, want int) (perByte time.Duration, allocated float64) {
		c := opened(t, &websocket.Codec{Compress: true}, offerDeflate)
		wire := frame{fin: true, rsv: 4, op: ws.OpBinary, payload: payload}.wire()
		shortest, least := time.Hour, uint64(1<<40)
		for range 30 {
			var before, after runtime.MemStats
			data := bytes.Clone(wire)
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, msg, err := c.Decode(data)
			shortest = min(shortest, time.Since(began))
			runtime.ReadMemStats(&after)
			if err != nil || len(msg) != want {
				t.Fatalf("%d bytes, %v; want %d", len(msg), err, want)
			}
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		most := max(len(payload), want)
		return shortest * 1000 / time.Duration(most), float64(least) / float64(most)
	}
	text, _ := cost(deflated(t, string(letters)), size)
	for name, payload := range hostile(size) {
		got, allocated := cost(payload, 0)
		t.Logf("%s: %v for 1000 bytes, and text %v", name, got, text)
		if got > 10*text {
			t.Errorf("%s: %v for 1000 bytes, and text %v; want at most ten times as much", name, got, text)
		}
		if allocated > 0.1 {
			t.Errorf("%s: %.1f bytes are allocated for a byte; want none", name, allocated)
		}
	}
}

// checkInflate compares what the codec and compress/flate make of a compressed message.
func checkInflate(t *testing.T, data []byte) {
	t.Helper()
	const limit = 100_000
	// standard inflates data and more after it, and returns how much of both it has not read.
	standard := func(more string) (message []byte, rest int, err error) {
		src := strings.NewReader(string(data) + more)
		message, err = io.ReadAll(io.LimitReader(flate.NewReader(src), 1<<20))
		return message, src.Len(), err
	}
	want, rest, err := standard("")
	ok := err == nil && (rest == 0 || rest == 1 && data[len(data)-1] == 0) // with a final block
	if err != nil {
		flushed, rest, err := standard("\x00\x00\xff\xff\x01\x00\x00\xff\xff")
		ok = err == nil && rest == 0 && bytes.Equal(flushed, want) // else it is cut off
	}
	c := opened(t, &websocket.Codec{Compress: true, MaxMessage: limit}, offerDeflate)
	_, got, err := c.Decode(frame{fin: true, rsv: 4, op: ws.OpBinary, payload: string(data)}.wire())
	switch {
	case errors.Is(err, codec.ErrTooLong) && (len(want) > limit || len(data) > limit):
	case err != nil && ok || err == nil && !bytes.Equal(got, want):
		t.Errorf("%x: %d bytes, %v; compress/flate: %d bytes, valid %t", data[:min(len(data), 100)], len(got), err, len(want), ok)
	}
}

// What compressors send is inflated: all levels, and flushes after each few bytes.
func TestInflateLikeTheStandard(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		for range 30 {
			var b bytes.Buffer
			w, _ := flate.NewWriter(&b, level)
			alphabet, span := 1+r.IntN(256), 1+r.IntN(1<<r.IntN(15))
			for range r.IntN(20) {
				piece := make([]byte, r.IntN(span))
				for i := range piece {
					piece[i] = byte(r.IntN(1 + r.IntN(alphabet)))
				}
				_, _ = w.Write(piece)
				if r.IntN(2) == 0 {
					_ = w.Flush()
				}
			}
			_ = w.Flush()
			data := bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
			checkInflate(t, data)
			for range 5 { // and damaged
				damaged := bytes.Clone(data)
				damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
				checkInflate(t, damaged[:1+r.IntN(len(damaged))])
			}
		}
	}
}

func FuzzInflate(f *testing.F) {
	for _, message := range hostile(200) {
		f.Add([]byte(message))
	}
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"))
	f.Add([]byte("\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"))
	f.Fuzz(checkInflate)
}
