package resp

import "bytes"

// A skipper finds the end of a value. How deep things are nested does not matter for that: an array
// of n only adds n to the values that are to come. So what it has to remember between two pieces of
// a long value is where it is, and how many that are.
type skipper struct {
	pos  int
	more int64 // values that follow at pos
	busy bool
}

// skip returns the length of the value that data begins with, or 0 if it is not whole. Called again
// with more of the same data, it goes on where it was. max is the length allowed, 0 means any.
func (s *skipper) skip(data []byte, max int) (n int, err error) {
	if !s.busy {
		s.pos, s.more, s.busy = 0, 1, true
	}
	for s.more > 0 {
		next, more, err := s.step(data, max)
		if err != nil {
			return 0, err
		}
		if next == 0 {
			return 0, checkMax(int64(len(data)), max)
		}
		s.pos, s.more = next, s.more-1+more
	}
	s.busy = false
	return s.pos, checkMax(int64(s.pos), max)
}

func checkMax(n int64, max int) error {
	if max > 0 && n > int64(max) {
		return tooLong("too big reply")
	}
	return nil
}

// step returns what follows the value at s.pos, and how many values belong to it. 0: it is not
// whole.
func (s *skipper) step(data []byte, max int) (next int, more int64, err error) {
	if s.pos >= len(data) {
		return 0, 0, nil
	}
	kind := data[s.pos]
	k := kinds[kind]
	if k == 0 {
		return 0, 0, malformed("unknown type of reply '" + printable(kind) + "'")
	}
	line, next := replyLine(data, s.pos+1)
	switch {
	case next == 0:
		return 0, 0, nil
	case k == isLine:
		return next, 0, nil
	case k == isEnd:
		if len(line) > 0 {
			return 0, 0, malformed("a null with something in it")
		}
		return next, 0, nil
	}
	count, ok := parseInt(line)
	switch {
	case k == isInt && ok:
		return next, 0, nil
	case !ok || count < -1 || count > 1<<31 || count == -1 && kind != '$' && kind != '*':
		return 0, 0, malformed("invalid length")
	case count == -1:
		return next, 0, nil
	case k == isArray:
		return next, values(kind, count), nil
	}
	return s.bulk(data, next, count, max)
}

func (s *skipper) bulk(data []byte, from int, n int64, max int) (next int, more int64, err error) {
	whole := int64(from) + n + 2 // where an int has 32 bits, it has no room for that
	if err := checkMax(whole, max); err != nil || whole > int64(len(data)) {
		return 0, 0, err
	}
	end := int(whole) - 2
	if data[end] != '\r' || data[end+1] != '\n' {
		return 0, 0, malformed("expected CRLF after a bulk string")
	}
	return end + 2, 0, nil
}

// replyLine returns the line at data[from:], without its end, and the offset of what follows: 0 if
// its end has not come.
func replyLine(data []byte, from int) (line []byte, next int) {
	i := bytes.IndexByte(data[from:], '\n')
	if i < 1 || data[from+i-1] != '\r' {
		return lineSlowly(data, from)
	}
	return data[from : from+i-1], from + i + 1
}

// lineSlowly looks for "\r\n" where there is a "\n" without "\r" before it.
func lineSlowly(data []byte, from int) (line []byte, next int) {
	i := bytes.Index(data[from:], []byte("\r\n"))
	if i < 0 {
		return nil, 0
	}
	return data[from : from+i], from + i + 2
}

const (
	isLine  = iota + 1 // the rest of the line, whatever it is
	isEnd              // nothing
	isInt              // a number
	isBulk             // the number of bytes that follow
	isArray            // the number of values that follow
)

// kinds are the first bytes of values: RESP2's are the first five.
var kinds = [256]uint8{
	'+': isLine, '-': isLine, ':': isInt, '$': isBulk, '*': isArray,
	'_': isEnd, ',': isLine, '#': isLine, '(': isLine,
	'=': isBulk, '!': isBulk, '%': isArray, '~': isArray, '>': isArray, '|': isArray,
}

// values returns how many values belong to an aggregate of n. To an attribute, which stands before
// what it is about, that belongs, too.
func values(kind byte, n int64) int64 {
	switch kind {
	case '%':
		return 2 * n
	case '|':
		return 2*n + 1
	}
	return n
}
