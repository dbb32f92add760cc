package timing

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// bytesOf returns a value whose bytes, padding included, follow from i. T has no pointers.
func bytesOf[T any](i uint32) (v T) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))
	for k := range b {
		b[k] = byte((i + uint32(k)) * 2654435761 >> 13)
	}
	return v
}

// chunksTest holds chunks against a plain slice.
type chunksTest[T comparable] struct {
	t     *testing.T
	c     chunks[T]
	want  []T
	value func(i uint32) T
	whole []*T // the chunks that were complete when they were looked at last
	most  uint32
	moves int // of the last chunk, since it was begun
}

// grow makes room for element i, and checks that all that is there stays.
func (m *chunksTest[T]) grow(i uint32) {
	chunksBefore, room := len(m.c.list), m.c.len()
	m.c.grow()
	if m.c.len() <= i || m.c.len() <= room {
		m.t.Fatalf("grow from %d to %d elements, and %d is asked for", room, m.c.len(), i)
	}
	if m.moves++; len(m.c.list) > chunksBefore {
		m.moves = 0
	}
	m.most = max(m.most, uint32(m.moves))
	complete := m.c.len() >> m.c.shift()
	if m.c.len()&(1<<m.c.shift()-1) == m.c.whole() {
		complete++
	}
	for k, first := range m.whole {
		if m.c.list[k] != first {
			m.t.Fatalf("chunk %d, which is whole, was moved", k)
		}
	}
	m.whole = append(m.whole, m.c.list[len(m.whole):complete]...)
	last := len(m.want) >> m.c.shift() << m.c.shift()
	m.same(last) // the others were not moved
}

// same checks all elements from the given one on.
func (m *chunksTest[T]) same(from int) {
	for i := from; i < len(m.want); i++ {
		if m.exists(uint32(i)) && *m.c.at(uint32(i)) != m.want[i] {
			m.t.Fatalf("element %d of %d is %v, want %v", i, len(m.want), *m.c.at(uint32(i)), m.want[i])
		}
	}
}

// exists reports whether there is an element i: the last of a whole chunk may be missing.
func (m *chunksTest[T]) exists(i uint32) bool { return i&(1<<m.c.shift()-1) < m.c.whole() }

// apart checks that no two elements share memory.
func (m *chunksTest[T]) apart() {
	var all []uintptr
	for i := range uint32(len(m.want)) {
		if m.exists(i) {
			all = append(all, uintptr(unsafe.Pointer(m.c.at(i))))
		}
	}
	slices.Sort(all)
	var zero T
	for k, at := range all[1:] {
		if at-all[k] < unsafe.Sizeof(zero) {
			m.t.Fatalf("two elements are %d bytes apart", at-all[k])
		}
	}
}

// run adds n elements, and changes others at random. What room there is in advance is a part of
// what is used, or the first chunk.
func (m *chunksTest[T]) run(n uint32, r *rand.Rand) {
	for i := range n {
		var zero T
		if !m.exists(i) {
			m.want = append(m.want, zero)
			continue
		}
		if i >= m.c.len() {
			m.grow(i)
		}
		if *m.c.at(i) != zero {
			m.t.Fatalf("element %d is new, and %v", i, *m.c.at(i))
		}
		m.want = append(m.want, m.value(i))
		*m.c.at(i) = m.want[i]
		if k := r.Uint32N(i + 1); k%8 == 0 && m.exists(k) {
			m.want[k] = m.value(r.Uint32())
			*m.c.at(k) = m.want[k]
		}
		if spare := m.c.len() - i; spare > 2*firstChunk+i/4 || spare > 2*firstChunk+chunkSize {
			m.t.Fatalf("room for %d of which %d are used", m.c.len(), i+1)
		}
	}
	runtime.GC() // what it does not see pointers to would go
	m.same(0)
	m.apart()
}

// holdAgainstSlice is the test of one type of elements.
func holdAgainstSlice[T comparable](t *testing.T, n uint32, value func(i uint32) T) {
	t.Helper()
	var zero T
	t.Run(fmt.Sprintf("%T of %d bytes", zero, unsafe.Sizeof(zero)), func(t *testing.T) {
		m := &chunksTest[T]{t: t, value: value}
		m.run(n, rand.New(rand.NewPCG(seed.Pick(t, 1), uint64(n))))
		t.Logf("%d elements in %d chunks, the last was moved %d times at most", n, len(m.c.list), m.most)
		if m.most > chunkSize/firstChunk {
			t.Errorf("a chunk was moved %d times", m.most)
		}
	})
}

// A chunks is a slice, whatever the size of its elements: growing leaves what there is, and whole
// chunks are never moved.
func TestChunksAgainstSlices(t *testing.T) {
	const many, whole, some, few = 140_000, 70_000, 10_000, 3000 // whole: chunks are; many: in batches
	holdAgainstSlice(t, many, bytesOf[uint8])
	holdAgainstSlice(t, many, bytesOf[node])
	holdAgainstSlice(t, many, func(i uint32) *uint32 { return &i })
	holdAgainstSlice(t, whole, bytesOf[[3]byte])
	holdAgainstSlice(t, whole, func(i uint32) keyedItem[string, struct{}] {
		return keyedItem[string, struct{}]{key: fmt.Sprint(i)}
	})
	holdAgainstSlice(t, whole, bytesOf[[31]byte]) // the most that has an element less in a chunk
	holdAgainstSlice(t, whole, bytesOf[[4]uint64])
	holdAgainstSlice(t, some, bytesOf[line])
	holdAgainstSlice(t, some, bytesOf[keyedItem[[100]byte, struct{}]])
	holdAgainstSlice(t, some, bytesOf[[128]byte]) // the largest that is moved
	holdAgainstSlice(t, few, bytesOf[[129]byte])
	holdAgainstSlice(t, few, bytesOf[quarter])
	holdAgainstSlice(t, few, bytesOf[keyedItem[[24]byte, [4096]byte]])
	holdAgainstSlice(t, whole, bytesOf[struct{}])
}

// Where a chunk with Go's word would take an eighth more, its last index is not used. All else has
// no such gaps: the buckets of keys are counted, and four quarters are one block.
func TestWholeChunks(t *testing.T) {
	nodes, calls, lines, memory := (*chunks[node])(nil), (*chunks[func()])(nil), (*chunks[line])(nil), (*chunks[quarter])(nil)
	if nodes.whole() != chunkSize-1 || calls.whole() != nodes.whole() {
		t.Errorf("chunks of %d nodes and %d callbacks, not %d", nodes.whole(), calls.whole(), chunkSize-1)
	}
	if lines.whole() != chunkSize || memory.whole() != 1<<largeBits {
		t.Errorf("chunks of %d lines and %d quarters, not %d and %d", lines.whole(), memory.whole(), chunkSize, 1<<largeBits)
	}
}
