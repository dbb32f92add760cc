package framing

import (
	"math/bits"
)

const (
	headroom    = 64               // what is around a message of a round size: a header
	minBuffer   = 512 + headroom   // the smallest buffer of a Decoder
	maxPooled   = 1<<20 + headroom // the largest one that a Pool keeps
	poolClasses = 12               // of buffers, from minBuffer to maxPooled
	poolBytes   = 16 << 20         // how much a Pool keeps, if SetMax is not called
	poolHeads   = 1024             // for how many Decoders it keeps what they know of their buffers
)

// A Pool keeps buffers that are not in use for the next Decoder, or other user, that needs one. The
// zero Pool is ready for use; a nil one keeps nothing. It holds at most 16 MiB, unless SetMax was
// called, of the buffers that it makes, which have 512 bytes to 1 MiB, in powers of two, and 64 bytes for a header; larger ones
// are left to the garbage collector. Buffers beyond its limit are taken from the size of which it
// has most.
//
// Package loop has one Pool for each loop. A Pool and the Decoders that share it belong to one
// goroutine.
type Pool struct {
	free [poolClasses][][]byte
	held int              // bytes
	less int              // by how much it keeps less than poolBytes
	size int              // bytes of all buffers, those in use included
	low  [poolClasses]int // the fewest buffers that there were since the last Trim

	heads []*leftover // not in use
}

// leftover returns one without a buffer.
func (p *Pool) leftover() *leftover {
	if p == nil || len(p.heads) == 0 {
		return new(leftover)
	}
	last := len(p.heads) - 1
	r := p.heads[last]
	p.heads[last] = nil
	p.heads = p.heads[:last]
	return r
}

func (p *Pool) putLeftover(r *leftover) {
	*r = leftover{}
	if p != nil && len(p.heads) < poolHeads {
		p.heads = append(p.heads, r)
	}
}

// Get returns an empty buffer with room for n bytes at least. Its bytes beyond its length are
// undefined.
func (p *Pool) Get(n int) []byte {
	if n <= maxPooled {
		class := classOf(n)
		if p != nil && len(p.free[class]) > 0 {
			return p.take(class)
		}
		n = classSize(class)
	}
	b := make([]byte, 0, n)
	p.Grew(nil, b)
	return b
}

// Grew tells that the user of a buffer has exchanged it for another one, as append does. A Pool counts
// what Get has made, and Put takes away what it does not keep.
func (p *Pool) Grew(before, after []byte) {
	if p != nil {
		p.size += cap(after) - cap(before)
	}
}

// Carry counts n bytes more of buffers that come from another Pool, or n less of those that go to
// one.
func (p *Pool) Carry(n int) { p.size += n }

// Size returns how many bytes the buffers of the Pool have, those that are in use and those that it
// keeps.
func (p *Pool) Size() int { return p.size }

// SetMax has the Pool keep n bytes at most, and 16 MiB at most.
func (p *Pool) SetMax(n int) {
	p.less = max(0, poolBytes-n)
	p.shrink()
}

// shrink drops buffers until it keeps no more than it may.
func (p *Pool) shrink() {
	for p.held > poolBytes-p.less {
		p.drop(p.fullest())
	}
}

// drop leaves a buffer of a class to the garbage collector.
func (p *Pool) drop(class int) { p.Grew(p.take(class), nil) }

// take removes one buffer of a class.
func (p *Pool) take(class int) []byte {
	free := p.free[class]
	b := free[len(free)-1]
	free[len(free)-1] = nil
	p.free[class] = free[:len(free)-1]
	p.low[class] = min(p.low[class], len(free)-1)
	p.held -= cap(b)
	return b
}

// Held returns how many bytes the Pool keeps.
func (p *Pool) Held() int { return p.held }

// Trim gives the garbage collector what has not been used since the last Trim: the buffers that
// were there all the time. Called now and then it makes a Pool as large as it must be, and that of
// a loop with nothing to do empty, the second time at the latest.
func (p *Pool) Trim() {
	for class := range p.free {
		for range p.low[class] {
			p.drop(class)
		}
		if p.low[class] = len(p.free[class]); p.low[class] == 0 {
			p.free[class] = nil
		}
	}
}

// Put takes a buffer that nobody uses any more. It need not come from Get, and may have grown
// since: the Pool hands it out as the largest of its sizes that fits.
func (p *Pool) Put(b []byte) {
	if p == nil || cap(b) >= 2*maxPooled-headroom || cap(b) < minBuffer {
		p.Grew(b, nil)
		return
	}
	class := bits.Len(uint(cap(b)-headroom)/(minBuffer-headroom)) - 1
	p.free[class] = append(p.free[class], b[:0])
	p.held += cap(b)
	p.shrink()
}

// fullest returns the class that holds most bytes.
func (p *Pool) fullest() (class int) {
	most := 0
	for i, free := range p.free {
		if n := len(free) * classSize(i); n > most {
			class, most = i, n
		}
	}
	return class
}

// classOf returns the class of the smallest buffers that have room for n bytes, n <= maxPooled.
func classOf(n int) int {
	return bits.Len(uint(max(0, n-headroom-1)) / (minBuffer - headroom))
}

// classSize returns how large the buffers of a class are.
func classSize(class int) int { return (minBuffer-headroom)<<class + headroom }
