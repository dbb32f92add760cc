package timing

// chunks is a slice that grows without moving much: nothing is copied or cleared but some 100 KiB
// at a time, so there is no latency spike however large it gets. It is small when little is in it,
// and few objects to the garbage collector when there is much.
//
// The chunks are slices, not pointers to arrays: for those the compiler adds a check for nil that
// reads the beginning of the array, and so waits for memory that nobody needs.
type chunks[T any] struct {
	list  [][]T // all of chunkSize but the first, which grows
	batch []T   // the rest of what was allocated last
}

const (
	chunkBits = 12
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	firstChunk = 64
	largeBatch = 4 // chunks that are allocated together, if there are many
)

// len returns how many elements there is room for.
func (c *chunks[T]) len() uint32 {
	if len(c.list) == 0 {
		return 0
	}
	return uint32((len(c.list)-1)*chunkSize + len(c.list[0]))
}

// at returns an element; i < len. The pointer is good until grow.
func (c *chunks[T]) at(i uint32) *T { return &c.list[i>>chunkBits][i&chunkMask] }

// grow makes room for more.
func (c *chunks[T]) grow() {
	switch {
	case len(c.list) == 0:
		c.list = [][]T{make([]T, firstChunk)}
	case len(c.list[0]) < chunkSize:
		larger := make([]T, 2*len(c.list[0]))
		copy(larger, c.list[0])
		c.list[0] = larger
	default:
		if len(c.batch) == 0 {
			n := 1
			if len(c.list) > 2*largeBatch {
				n = largeBatch
			}
			c.batch = make([]T, n*chunkSize)
		}
		c.list = append(c.list, c.batch[:chunkSize:chunkSize])
		c.batch = c.batch[chunkSize:]
	}
}
