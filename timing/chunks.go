package timing

import "unsafe"

// chunks is a slice that grows without moving much: nothing is copied or cleared but some 100 KiB
// at a time, so there is no latency spike however large it gets. It is small when little is in it,
// and few objects to the garbage collector when there is much.
//
// Finding an element is most of what a wheel does, so it is done with unsafe. With safe pointers to
// arrays the compiler adds a check for nil that reads the beginning of the array, and so waits for
// memory that nobody needs; with slices it takes twice as many instructions. So indices are not
// checked: each must come from the wheel itself, which never gets smaller, or from a handle that
// has the wheel's number.
type chunks[T any] struct {
	list  []*T   // the first element of each chunk
	mask  uint32 // the length of a chunk, a power of two, less one; of the first if there is no other
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
func (c *chunks[T]) len() uint32 {
	if len(c.list) == 0 {
		return 0
	}
	return uint32(len(c.list)-1)<<c.shift() + c.mask + 1
}

// at returns an element; i < len, which is not checked. The pointer is good until grow.
func (c *chunks[T]) at(i uint32) *T {
	return unchecked(*unchecked(unsafe.SliceData(c.list), i>>c.shift()), i&(1<<c.shift()-1))
}

// unchecked returns element i of an array, which must have it.
func unchecked[T any](first *T, i uint32) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), uintptr(i)*unsafe.Sizeof(*first)))
}

// grow makes room for more: first for some elements, then for twice as many until there is a whole
// chunk.
func (c *chunks[T]) grow() {
	size := 1 << c.shift()
	switch {
	case len(c.list) == 0:
		n := size * firstChunk / chunkSize
		c.list = []*T{&make([]T, n)[0]}
		c.mask = uint32(n - 1)
	case c.mask < uint32(size-1):
		larger := make([]T, 2*c.len())
		copy(larger, unsafe.Slice(c.list[0], c.len()))
		c.list[0] = &larger[0]
		c.mask = 2*c.mask + 1
	default:
		if len(c.batch) == 0 {
			c.batch = make([]T, size*max(1, min(len(c.list)/manyChunks, largeBatch)))
		}
		c.list = append(c.list, &c.batch[0])
		c.batch = c.batch[size:]
	}
}
