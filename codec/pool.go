package codec

import "math/bits"

const (
	minBuffer   = 512       // the smallest buffer of a Decoder
	maxPooled   = 64 << 10  // the largest one that a Pool keeps
	poolClasses = 8         // powers of two from minBuffer to maxPooled
	classBytes  = 256 << 10 // how much of each class a Pool keeps
)

// A Pool keeps buffers that are not in use for the next Decoder, or other user, that needs one. The zero
// Pool is ready for use; a nil one keeps nothing. It holds at most 2 MiB of the buffers that it makes, which
// have 512 bytes to 64 KiB, in powers of two; larger ones are left to the garbage collector.
//
// It is for those who run Decoders, such as package loop, which has one Pool for each loop. A Pool and
// the Decoders that share it belong to one goroutine.
type Pool struct {
	free [poolClasses][][]byte
}

// Get returns an empty buffer with room for n bytes at least. What is in it beyond its length is anything.
func (p *Pool) Get(n int) []byte {
	if n > maxPooled {
		return make([]byte, 0, n)
	}
	class := classOf(max(n, 1))
	if p != nil {
		if free := p.free[class]; len(free) > 0 {
			b := free[len(free)-1]
			free[len(free)-1] = nil
			p.free[class] = free[:len(free)-1]
			return b
		}
	}
	return make([]byte, 0, minBuffer<<class)
}

// Put takes a buffer that nobody uses any more. It need not come from Get, and may have grown since: the
// Pool hands it out as the largest of its sizes that fits.
func (p *Pool) Put(b []byte) {
	if p == nil || cap(b) > maxPooled || cap(b) < minBuffer {
		return
	}
	class := bits.Len(uint(cap(b))/minBuffer) - 1
	if free := p.free[class]; len(free)*cap(b) < classBytes {
		p.free[class] = append(free, b[:0])
	}
}

// classOf returns the class of the smallest buffers that have room for n bytes, 0 < n <= maxPooled.
func classOf(n int) int {
	return bits.Len(uint(n-1) / minBuffer)
}
