package websocket

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"sync"
)

// Decompression, RFC 1951. A block of 13 to 40 bytes can define Huffman codes and contain nothing
// else. compress/flate needs 4 µs for such a block and allocates: 64 KiB of them took 6 ms. This
// takes about 1 µs, so the time is proportional to the length of the input and the output: see
// TestHostileBlocks. No message refers to an earlier one, so the output is the window.

const (
	maxCodeLength = 15
	endOfBlock    = 256 // the symbol
	directBits    = 9   // a code up to this length is found with one look
)

// A code is a Huffman code, of at most 288 symbols.
type code struct {
	direct [1 << directBits]uint16   // symbol<<4 | length, by the next width bits; 0: a longer code, or none
	width  int                       // of the longest code, but at most directBits
	count  [maxCodeLength + 1]uint16 // of the codes of each length
	sorted [288]uint16               // symbols, in the order of their codes
}

// build builds the code from the length of each symbol's code, 0 for a symbol without one. It
// reports false if the lengths are invalid. As in compress/flate, an incomplete code is valid only
// if it is empty or has one symbol, of one bit.
func (c *code) build(lengths []byte) bool {
	c.count = [maxCodeLength + 1]uint16{}
	var used [288]uint16 // symbols that have codes
	numUsed := 0
	for symbol := 0; symbol < len(lengths); symbol++ {
		if rest := lengths[symbol:]; len(rest) >= 8 && binary.LittleEndian.Uint64(rest) == 0 {
			symbol += 7 // most symbols have no code
			continue
		}
		if n := lengths[symbol]; n != 0 {
			c.count[n]++
			used[numUsed] = uint16(symbol)
			numUsed++
		}
	}
	var place [maxCodeLength + 2]uint16 // the index in sorted of the next symbol, by the length of its code
	c.width = 0
	left := 1 // unused codes
	for n := 1; n <= maxCodeLength; n++ {
		left = left<<1 - int(c.count[n])
		if left < 0 {
			return false
		}
		place[n+1] = place[n] + c.count[n]
		if c.count[n] > 0 {
			c.width = min(n, directBits)
		}
	}
	if left > 0 && numUsed > 0 && (numUsed > 1 || c.count[1] == 0) {
		return false
	}
	for _, symbol := range used[:numUsed] {
		n := lengths[symbol]
		c.sorted[place[n]] = symbol
		place[n]++
	}
	c.fill()
	return true
}

// fill fills direct. The table for n bits is two copies of the table for n-1 bits, with the codes of
// n bits added.
func (c *code) fill() {
	next, symbols := uint16(0), c.sorted[:]
	c.direct[0] = 0
	for n := 1; n <= c.width; n++ {
		copy(c.direct[1<<(n-1):1<<n], c.direct[:1<<(n-1)])
		next <<= 1
		for _, symbol := range symbols[:c.count[n]] {
			c.direct[bits.Reverse16(next)>>(16-n)] = symbol<<4 | uint16(n)
			next++
		}
		symbols = symbols[c.count[n]:]
	}
}

// search finds the code at the start of input bit by bit, and returns symbol<<4 | length, or 0 if
// there is none.
func (c *code) search(input uint64) uint16 {
	var prefix, first, place uint16 // first is the lowest code of n bits, and place its index in sorted
	for n := 1; n <= maxCodeLength; n++ {
		prefix |= uint16(input & 1)
		input >>= 1
		count := c.count[n]
		if prefix-first < count {
			return c.sorted[place+prefix-first]<<4 | uint16(n)
		}
		place += count
		first = (first + count) << 1
		prefix <<= 1
	}
	return 0
}

// fixedCodes are those of RFC 1951 section 3.2.6.
var fixedCodes = sync.OnceValue(func() *[2]code {
	var codes [2]code
	lengths := slices.Concat(slices.Repeat([]byte{8}, 144), slices.Repeat([]byte{9}, 112),
		slices.Repeat([]byte{7}, 24), slices.Repeat([]byte{8}, 8))
	codes[0].build(lengths)
	codes[1].build(slices.Repeat([]byte{5}, 32))
	return &codes
})

// The smallest length or distance of each symbol, and how many extra bits follow the symbol.
var (
	lengthBase = [...]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthBits = [...]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}

	distanceBase = [...]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distanceBits = [...]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
)

// lengthOrder is the order of the lengths in the header of a block.
var lengthOrder = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// errDeflate is the error of what cannot be a compressed message.
var errDeflate = errors.New("a compressed message that cannot be inflated")

// An inflater is shared like a deflater.
type inflater struct {
	in    []byte
	pos   int    // in in, of the next byte to load into bits
	bits  uint64 // the lowest have bits are the next of the input; the others are undefined
	have  uint
	out   []byte
	limit int // of len(out)

	literals, distances code
	lengths             [288 + 32]byte
}

var inflaters = sync.Pool{New: func() any { return new(inflater) }}

// inflate returns the decompressed message, of at most limit bytes. Output may be a thousand times as
// long as the input, so it stops at limit.
func inflate(data []byte, limit int) (message []byte, err error) {
	i := inflaters.Get().(*inflater)
	defer i.release()
	i.in, i.pos, i.bits, i.have, i.out, i.limit = data, 0, 0, 0, i.out[:0], limit
	for !i.atEnd() {
		final, err := i.block()
		switch {
		case errors.Is(err, errDeflate):
			return nil, violation(StatusInvalidData, "%w", err)
		case err != nil:
			return nil, err
		case final && i.hasMore():
			return nil, violation(StatusInvalidData, "a compressed message with data after its final block")
		case final:
			return i.message(), nil
		}
	}
	return i.message(), nil
}

func (i *inflater) message() []byte { return append(make([]byte, 0, len(i.out)), i.out...) }

// atEnd reports whether the message ends between two blocks. It should end with the three zero bits
// of the block whose other bytes are flushEnd, and bits that fill the last byte. Some peers omit
// them.
func (i *inflater) atEnd() bool {
	i.refill()
	return i.have < 3+8 && i.bits&(1<<min(i.have, 3)-1) == 0
}

// hasMore reports whether there is data after a final block. The empty block of RFC 7692 section
// 7.2.3.5, of which a zero byte is on the wire, is none.
func (i *inflater) hasMore() bool {
	rest := i.in[i.pos-int(i.have/8):]
	return len(rest) > 1 || len(rest) == 1 && rest[0] != 0
}

func (i *inflater) release() {
	i.in = nil
	if cap(i.out) > maxKept {
		i.out = nil
	}
	inflaters.Put(i)
}

// block inflates a block, and reports whether it says that it is the last.
func (i *inflater) block() (final bool, err error) {
	header, err := i.take(3)
	if err != nil {
		return false, err
	}
	switch final = header&1 != 0; header >> 1 {
	case 0:
		err = i.stored()
	case 1:
		codes := fixedCodes()
		err = i.symbols(&codes[0], &codes[1])
	case 2:
		if err = i.readCodes(); err == nil {
			err = i.symbols(&i.literals, &i.distances)
		}
	default:
		err = errDeflate
	}
	return final, err
}

// refill loads bits until there are at least 56, or the input ends.
func (i *inflater) refill() {
	if i.pos+8 <= len(i.in) {
		i.bits |= binary.LittleEndian.Uint64(i.in[i.pos:]) << i.have
		i.pos += int((63 - i.have) / 8)
		i.have |= 56
		return
	}
	for i.bits &= 1<<i.have - 1; i.have <= 56 && i.pos < len(i.in); i.pos++ {
		i.bits |= uint64(i.in[i.pos]) << i.have
		i.have += 8
	}
}

// take returns the next n bits, at most 16.
func (i *inflater) take(n uint) (uint, error) {
	if i.have < n {
		if i.refill(); i.have < n {
			return 0, errDeflate
		}
	}
	v := uint(i.bits & (1<<n - 1))
	i.skip(n)
	return v, nil
}

func (i *inflater) skip(n uint) {
	i.bits >>= n
	i.have -= n
}

// symbol returns the next symbol, without its extra bits.
func (i *inflater) symbol(c *code) (int, error) {
	if i.have < maxCodeLength {
		i.refill()
	}
	entry := c.direct[i.bits&(1<<c.width-1)]
	if entry == 0 {
		entry = c.search(i.bits)
	}
	n := uint(entry & 15)
	if n == 0 || n > i.have {
		return 0, errDeflate
	}
	i.skip(n)
	return int(entry >> 4), nil
}

// stored copies a block that is not compressed: RFC 1951 section 3.2.4.
func (i *inflater) stored() error {
	i.skip(i.have % 8)
	size, err := i.take(16)
	if err != nil {
		return err
	}
	complement, err := i.take(16)
	if err != nil || size != ^complement&0xffff {
		return errDeflate
	}
	i.pos -= int(i.have / 8)
	i.bits, i.have = 0, 0
	if int(size) > len(i.in)-i.pos {
		return errDeflate
	}
	if err = i.reserve(int(size)); err != nil {
		return err
	}
	i.out = append(i.out, i.in[i.pos:i.pos+int(size)]...)
	i.pos += int(size)
	return nil
}

// readCodes reads the codes of a block: RFC 1951 section 3.2.7.
func (i *inflater) readCodes() error {
	counts, err := i.take(14)
	if err != nil {
		return err
	}
	literals, distances, lengths := int(counts&31)+257, int(counts>>5&31)+1, int(counts>>10)+4
	if literals > 286 || distances > len(distanceBase) {
		return errDeflate
	}
	var first [19]byte
	for _, symbol := range lengthOrder[:lengths] {
		n, err := i.take(3)
		if err != nil {
			return err
		}
		first[symbol] = byte(n)
	}
	if !i.distances.build(first[:]) {
		return errDeflate
	}
	for n := 0; n < literals+distances; {
		symbol, err := i.symbol(&i.distances)
		if err != nil {
			return err
		}
		value, times, more := byte(symbol), 1, uint(0)
		switch symbol {
		case 16:
			if n == 0 {
				return errDeflate
			}
			value, times, more = i.lengths[n-1], 3, 2
		case 17:
			value, times, more = 0, 3, 3
		case 18:
			value, times, more = 0, 11, 7
		}
		extra, err := i.take(more)
		if times += int(extra); err != nil || n+times > literals+distances {
			return errDeflate
		}
		if value == 0 {
			clear(i.lengths[n : n+times])
		} else {
			for k := range times {
				i.lengths[n+k] = value
			}
		}
		n += times
	}
	if !i.literals.build(i.lengths[:literals]) || !i.distances.build(i.lengths[literals:literals+distances]) {
		return errDeflate
	}
	return nil
}

// symbols inflates the rest of a block whose codes are known.
func (i *inflater) symbols(literals, distances *code) error {
	for {
		symbol, err := i.symbol(literals)
		switch {
		case err != nil:
			return err
		case symbol == endOfBlock:
			return nil
		case symbol > endOfBlock:
			if err = i.match(symbol-endOfBlock-1, distances); err != nil {
				return err
			}
			continue
		case len(i.out) == cap(i.out) || len(i.out) == i.limit:
			if err = i.reserve(1); err != nil {
				return err
			}
		}
		i.out = append(i.out, byte(symbol))
	}
}

// match copies earlier output. Source and destination may overlap.
func (i *inflater) match(symbol int, distances *code) error {
	if symbol >= len(lengthBase) {
		return errDeflate
	}
	extra, err := i.take(uint(lengthBits[symbol]))
	if err != nil {
		return err
	}
	length := int(lengthBase[symbol]) + int(extra)
	if symbol, err = i.symbol(distances); err != nil || symbol >= len(distanceBase) {
		return errDeflate
	}
	extra, err = i.take(uint(distanceBits[symbol]))
	distance := int(distanceBase[symbol]) + int(extra)
	if err != nil || distance > len(i.out) {
		return errDeflate
	}
	if err = i.reserve(length); err != nil {
		return err
	}
	begin, end := len(i.out)-distance, len(i.out)
	i.out = i.out[:end+length]
	for end < len(i.out) { // each turn doubles the source
		end += copy(i.out[end:], i.out[begin:end])
	}
	return nil
}

// reserve makes room for n more bytes of output. It returns an error if the message is too long.
func (i *inflater) reserve(n int) error {
	if n > i.limit-len(i.out) {
		return tooBig("decompressed message", i.limit+1, i.limit)
	}
	if n > cap(i.out)-len(i.out) { // slices.Grow may exceed maxKept
		i.out = append(make([]byte, 0, max(minShrink, 2*cap(i.out), len(i.out)+n)), i.out...)
	}
	return nil
}
