package timing

import (
	"math/bits"
	"slices"
	"unsafe"
)

// chunks is a slice that grows without moving much: nothing is copied or cleared but some 100 KiB
// at a time, so there is no latency spike however large it gets. It has little room that is not in
// use, and is few objects to the garbage collector when it is large.
//
// Finding an element is most of what a wheel does, so it is done with unsafe. With safe pointers to
// arrays the compiler adds a check for nil that reads the beginning of the array, and so waits for
// memory that nobody needs; with slices it takes twice as many instructions. So indices are not
// checked: each must come from the wheel itself, which never gets smaller, or from a handle that
// has the wheel's number.
type chunks[T any] struct {
	list  []*T   // the first element of each chunk
	room  uint32 // where the last chunk, which may be smaller than the others, ends
	batch []T    // the rest of what was allocated last
}

const (
	chunkBits = 10
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	// Where elements are large a chunk has only a few, and none is ever moved.
	largeSize = 128 // bytes
	largeBits = 3

	// The last chunk grows by a part of all that there is, and is moved for that: some ten times. What
	// it leaves behind is work for the garbage collector, and memory that nothing was in yet costs the
	// system a fault. From chunkSize*growStep elements on, chunks are whole from the beginning.
	firstChunk = 64        // elements, and the least that the last chunk grows by
	growStep   = 64        // which part that is
	growPart   = 32        // what whole chunks are allocated at a time, of all that there are
	batchBytes = 100 << 10 // but not more than that

	// Go puts a word of its own before what has pointers and is no larger than this, in bytes. With
	// that a power of two would be rounded up by an eighth or more.
	headed = 32<<10 - 8
)

// shift is how many bits number the elements of a chunk: the lowest of an index. It is a constant
// to the compiler.
func (c *chunks[T]) shift() uint {
	if unsafe.Sizeof(*c.list[0]) > largeSize {
		return largeBits
	}
	return chunkBits
}

// whole returns how many elements a chunk has at most: all that its indices are for, or one less,
// so that it has room for Go's word. Then the last index of each chunk is not used.
func (c *chunks[T]) whole() uint32 {
	size := uint32(1) << c.shift()
	if bytes := uintptr(size) * unsafe.Sizeof(*c.list[0]); size == chunkSize && bytes <= headed {
		return size - 1
	}
	return size
}

// len is more than any index that can be used.
func (c *chunks[T]) len() uint32 { return c.room }

// at returns an element; i < len, which is not checked. The pointer is good until grow. (It calls
// none of the functions below, as each call that is inlined in another costs an instruction.)
func (c *chunks[T]) at(i uint32) *T {
	shift := chunkBits
	if unsafe.Sizeof(*c.list[0]) > largeSize {
		shift = largeBits
	}
	chunk := unsafe.Add(unsafe.Pointer(unsafe.SliceData(c.list)), uintptr(i>>shift)*unsafe.Sizeof(c))
	return (*T)(unsafe.Add(*(*unsafe.Pointer)(chunk), uintptr(i&(1<<shift-1))*unsafe.Sizeof(*c.list[0])))
}

// unchecked returns element i of an array, which must have it.
func unchecked[T any](first *T, i uint32) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*unsafe.Sizeof(*first)))
}

// uncheckedIn returns element i of a slice, which must have it.
func uncheckedIn[T any](s []T, i uint32) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), uintptr(i)*unsafe.Sizeof(s[0])))
}

// grow makes room for more: for a part of what there is, in the last chunk or a new one. Chunks are
// whole from the beginning where there are many or these are small.
func (c *chunks[T]) grow() {
	size := uint32(1) << c.shift()
	have := c.room & (size - 1) // in the last chunk, if that is not whole
	if have == size-1 && have == c.whole() {
		c.room++
		have = 0
	}
	step := max(c.room/growStep, firstChunk)
	switch {
	case have > 0:
		c.growLast(have, have+step)
	case step < size:
		c.add(c.atLeast(step - 1))
	default:
		c.addWhole(size)
	}
}

// atLeast returns n elements for a chunk, and more of them if what Go rounds up has room: all there
// may be, or an odd number. Of 8 bytes each that is what Go's word leaves of what it is rounded to.
// Without the word there is one more, which is not used: so nodes and callbacks grow in step.
func (c *chunks[T]) atLeast(n uint32) []T {
	whole := c.whole()
	chunk := slices.Grow([]T(nil), int(min(n|1, whole)))
	if room := uint32(cap(chunk)); room < whole {
		return chunk[:(room+1)&^1-1]
	}
	return chunk[:whole]
}

// powerOfTwo returns the largest power of two that is not above n: as Go rounds the size of what is
// allocated up, that wastes least.
func powerOfTwo(n uint32) uint32 { return 1 << bits.Len32(n) >> 1 }

// addWhole adds a chunk, which is allocated together with others if there are many.
func (c *chunks[T]) addWhole(size uint32) {
	if len(c.batch) == 0 {
		bytes := uintptr(size) * unsafe.Sizeof(*c.list[0])
		most := uint32(batchBytes / max(bytes, 1)) // elements may be nothing, such as those of a set of struct{}
		n := max(powerOfTwo(min(uint32(len(c.list))/growPart, most)), 1)
		c.batch = make([]T, (n-1)*size+c.whole())
	}
	c.add(c.batch[:c.whole()])
	c.batch = c.batch[min(int(size), len(c.batch)):]
}

func (c *chunks[T]) add(chunk []T) {
	c.list = appendTight(c.list, &chunk[0])
	c.room += uint32(len(chunk))
}

// growLast moves the last chunk, of so many elements, to one that is larger.
func (c *chunks[T]) growLast(have, to uint32) {
	larger := c.atLeast(to)
	last := &c.list[len(c.list)-1]
	copy(larger, unsafe.Slice(*last, have))
	*last = &larger[0]
	c.room += uint32(len(larger)) - have
}

// appendTight is append that leaves less room: a sixteenth, and what Go rounds up.
func appendTight[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		s = append(slices.Grow([]T(nil), len(s)+len(s)/16+4), s...)
	}
	return append(s, v)
}

// blockIn returns the block whose last quarter is q.
func blockIn(q *quarter) block {
	return block{(*entry)(unsafe.Add(unsafe.Pointer(q), (smallLen-1)*unsafe.Sizeof(entry{})))}
}

// entry returns a place of a block, from link.base to offMask, which is not checked. It is found
// from the last one backwards: the first 48 are no memory of a small block, so nothing may point
// there.
func (b block) entry(place uint32) *entry {
	const size = int(unsafe.Sizeof(entry{}))
	return (*entry)(unsafe.Add(unsafe.Pointer(b.last), int(place)*size-offMask*size))
}

// entries returns a block's places from the first that is in m to the last. m is not 0.
func (b block) entries(m mask) []entry {
	return unsafe.Slice(b.entry(m.first()), m.end()-m.first())
}
