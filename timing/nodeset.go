package timing

import "math/bits"

// nodeSet is a set of numbers below maxNodes. Level 0 has a bit for each, and each level above a bit
// for each word of the one below that is not zero: so the lowest are found in a few steps, however
// far apart they are.
type nodeSet struct{ levels [6][]uint64 }

func (s *nodeSet) add(i uint32) {
	if !s.addBeside(i) {
		s.addFirst(i)
	}
}

// addBeside adds a number if there is another one in the same word, as there mostly is.
func (s *nodeSet) addBeside(i uint32) bool {
	words, at := s.levels[0], i>>6
	if int(at) >= len(words) || *uncheckedIn(words, at) == 0 {
		return false
	}
	*uncheckedIn(words, at) |= 1 << (i & 63)
	return true
}

// addFirst is add where there may be none in the same word, of which the levels above do not know.
func (s *nodeSet) addFirst(i uint32) {
	for l := range s.levels {
		words := s.levels[l]
		at := int(i >> 6)
		if at >= len(words) {
			words = append(words, make([]uint64, at+1-len(words))...)
			s.levels[l] = words
		}
		was := words[at]
		words[at] = was | 1<<(i&63)
		if was != 0 {
			return
		}
		i >>= 6
	}
}

// take removes the lowest word that is not zero: bit k of it is first+k. It is 0 if the set is
// empty.
func (s *nodeSet) take() (first uint32, word uint64) {
	top := len(s.levels) - 1
	if len(s.levels[top]) == 0 || s.levels[top][0] == 0 {
		return 0, 0
	}
	at := uint32(0)
	for l := top; l > 0; l-- {
		at = at<<6 | uint32(bits.TrailingZeros64(s.levels[l][at]))
	}
	first, word = at<<6, s.levels[0][at]
	s.levels[0][at] = 0
	for l := 1; l <= top; l++ {
		w := &s.levels[l][at>>6]
		if *w &^= 1 << (at & 63); *w != 0 {
			break
		}
		at >>= 6
	}
	return first, word
}
