package timing

// chunks is a slice that grows without moving what is in it: nothing is copied or cleared but a few
// KiB at a time, so there is no latency spike however large it gets. It takes its memory in batches
// that grow with it, so that it is small when little is in it, and few objects to the garbage
// collector when there is much.
type chunks[T any] struct {
	list  []*[chunkSize]T
	spare [][chunkSize]T // the rest of the last batch
}

const (
	chunkBits = 8
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	maxBatch = 16 // chunks
)

// len returns how many elements there is room for.
func (c *chunks[T]) len() uint32 { return uint32(len(c.list)) << chunkBits }

// at returns an element; i < len.
func (c *chunks[T]) at(i uint32) *T { return &c.list[i>>chunkBits][i&chunkMask] }

// grow makes room for chunkSize more.
func (c *chunks[T]) grow() {
	if len(c.spare) == 0 {
		c.spare = make([][chunkSize]T, min(max(len(c.list), 1), maxBatch))
	}
	c.list = append(c.list, &c.spare[0])
	c.spare = c.spare[1:]
}
