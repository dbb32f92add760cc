package timing

import "unsafe"

// chunks is a slice that grows without moving much: nothing is copied or cleared but some 100 KiB
// at a time, so there is no latency spike however large it gets. It has little room that is not in
// use when it is small, and is few objects to the garbage collector when it is large.
//
// Finding an element is most of what a wheel does, so it is done with unsafe. With safe pointers to
// arrays the compiler adds a check for nil that reads the beginning of the array, and so waits for
// memory that nobody needs; with slices it takes twice as many instructions. So indices are not
// checked: each must come from the wheel itself, which never gets smaller, or from a handle that
// has the wheel's number.
type chunks[T any] struct {
	list  []*T   // the first element of each chunk
	room  uint32 // elements in all chunks, of which the last may be smaller than the others
	batch []T    // the rest of what was allocated last
}

const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	firstChunk = 64
	largeBatch = 4 // chunks that are allocated together, if there are many
	manyChunks = 16
)

// shift is how many bits number the elements of a chunk: all but the lowest chunkBits of an index,
// or fewer where elements are large. It is a constant to the compiler.
func (c *chunks[T]) shift() uint {
	if unsafe.Sizeof(*c.list[0]) > 512 {
		return chunkBits - 6
	}
	return chunkBits
}

// len returns how many elements there is room for.
func (c *chunks[T]) len() uint32 { return c.room }

// at returns an element; i < len, which is not checked. The pointer is good until grow.
func (c *chunks[T]) at(i uint32) *T {
	return unchecked(*unchecked(unsafe.SliceData(c.list), i>>c.shift()), i&(1<<c.shift()-1))
}

// unchecked returns element i of an array, which must have it.
func unchecked[T any](first *T, i uint32) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*unsafe.Sizeof(*first)))
}

// grow makes room for more: first for some elements, then for twice as many until there is a whole
// chunk, then for a quarter of one until there are many.
func (c *chunks[T]) grow() {
	size := uint32(1) << c.shift()
	have := c.room & (size - 1) // in the last chunk, if that is not whole
	switch {
	case have > 0 && len(c.list) == 1:
		c.growLast(have, 2*have)
	case have > 0:
		c.growLast(have, have+size/4)
	case len(c.list) == 0:
		c.add(make([]T, size*firstChunk/chunkSize))
	case len(c.list) < manyChunks:
		c.add(make([]T, size/4))
	default:
		if len(c.batch) == 0 {
			c.batch = make([]T, size*uint32(min(len(c.list)/manyChunks, largeBatch)))
		}
		c.add(c.batch[:size])
		c.batch = c.batch[size:]
	}
}

func (c *chunks[T]) add(chunk []T) {
	c.list = append(c.list, &chunk[0])
	c.room += uint32(len(chunk))
}

// growLast moves the last chunk to one that is larger.
func (c *chunks[T]) growLast(from, to uint32) {
	larger := make([]T, to)
	last := &c.list[len(c.list)-1]
	copy(larger, unsafe.Slice(*last, from))
	*last = &larger[0]
	c.room += to - from
}
