package resp

import "math"

// parseInt parses a decimal number as redis-server does: an optional minus, no leading zeros or
// plus, no spaces.
func parseInt(b []byte) (n int64, ok bool) {
	if len(b) == 1 && b[0]-'0' <= 9 {
		return int64(b[0] - '0'), true
	}
	return ParseInt(b)
}

// ParseInt parses a decimal number as redis-server does: an optional minus, then digits without
// leading zeros, nothing else, and within 64 bits.
func ParseInt[T ~string | ~[]byte](b T) (n int64, ok bool) {
	i, negative := 0, false
	if len(b) > 0 && b[0] == '-' {
		i, negative = 1, true
	}
	if i == len(b) || len(b) > 20 || b[i] == '0' && len(b) > 1 {
		return 0, false
	}
	var u uint64
	for ; i < len(b); i++ {
		digit := b[i] - '0'
		if digit > 9 || u > (math.MaxUint64-uint64(digit))/10 {
			return 0, false
		}
		u = u*10 + uint64(digit)
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// splitWords appends the words of an inline request to args, which may be in 'quotes', where \' is
// a quote, or in "quotes" with escapes. Words that are not in line as they are go to room. It
// reports false if a quote is not closed, or something follows one.
func splitWords(args [][]byte, room, line []byte) (_ [][]byte, _ []byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, room, true
		}
		start := i
		for i < len(line) && !isSpace(line[i]) && line[i] != '"' && line[i] != '\'' {
			i++
		}
		if i == len(line) || isSpace(line[i]) {
			args = append(args, line[start:i:i])
			continue
		}
		from := len(room)
		if room, i, ok = quotedWord(append(room, line[start:i]...), line, i); !ok {
			return args, room, false
		}
		args = append(args, room[from:len(room):len(room)])
	}
}

// quotedWord appends the rest of a word that goes on with a quote at i, and returns what follows.
func quotedWord(room, line []byte, i int) (_ []byte, next int, ok bool) {
	for i < len(line) && !isSpace(line[i]) {
		switch line[i] {
		case '"':
			room, i, ok = doubleQuoted(room, line, i+1)
		case '\'':
			room, i, ok = singleQuoted(room, line, i+1)
		default:
			room, i, ok = append(room, line[i]), i+1, true
			continue
		}
		if !ok || i < len(line) && !isSpace(line[i]) {
			return room, 0, false
		}
	}
	return room, i, true
}

func doubleQuoted(room, line []byte, i int) (_ []byte, next int, ok bool) {
	for i < len(line) {
		switch c := line[i]; {
		case c == '"':
			return room, i + 1, true
		case c == '\\' && i+3 < len(line) && line[i+1] == 'x' && unhex(line[i+2]) < 16 && unhex(line[i+3]) < 16:
			room = append(room, unhex(line[i+2])<<4|unhex(line[i+3]))
			i += 4
		case c == '\\' && i+1 < len(line):
			room = append(room, unescape(line[i+1]))
			i += 2
		default:
			room = append(room, c)
			i++
		}
	}
	return room, 0, false
}

func singleQuoted(room, line []byte, i int) (_ []byte, next int, ok bool) {
	for i < len(line) {
		switch c := line[i]; {
		case c == '\'':
			return room, i + 1, true
		case c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			room = append(room, '\'')
			i += 2
		default:
			room = append(room, c)
			i++
		}
	}
	return room, 0, false
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// unhex returns the value of a hexadecimal digit, 255 if it is none.
func unhex(b byte) byte {
	switch {
	case b >= '0' && b <= '9':
		return b - '0'
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return b | 0x20 - 'a' + 10
	}
	return 255
}

func unescape(b byte) byte {
	switch b {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return b
}
