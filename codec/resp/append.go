package resp

import (
	"math"
	"strconv"
)

// A Version is that of the protocol that a connection speaks. Its Append functions write what RESP3
// has and RESP2 does not, in the form that redis-server gives it in RESP2. The zero Version is
// RESP2.
type Version uint8

// The versions. A connection begins with RESP2, and HELLO 3 changes that.
const (
	RESP2 Version = iota
	RESP3
)

// AppendSimple appends a simple string, such as "OK". Line ends in s become spaces, as the string
// would end there.
func AppendSimple(dst []byte, s string) []byte { return appendLine(append(dst, '+'), s) }

// AppendError appends an error. It begins with a code in capitals by which programs know it, such
// as "ERR" or "WRONGTYPE". Line ends in s become spaces.
func AppendError(dst []byte, s string) []byte { return appendLine(append(dst, '-'), s) }

func appendLine(dst []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b == '\r' || b == '\n' {
			dst = append(dst, ' ')
		} else {
			dst = append(dst, b)
		}
	}
	return append(dst, '\r', '\n')
}

// AppendInt appends an integer.
func AppendInt(dst []byte, n int64) []byte { return appendHead(dst, ':', n) }

func appendHead(dst []byte, kind byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(dst, kind, '0'+byte(n), '\r', '\n')
	}
	dst = strconv.AppendInt(append(dst, kind), n, 10)
	return append(dst, '\r', '\n')
}

// AppendBulk appends a bulk string, which may be any bytes.
func AppendBulk[T ~string | ~[]byte](dst []byte, b T) []byte {
	dst = appendHead(dst, '$', int64(len(b)))
	dst = append(dst, b...)
	return append(dst, '\r', '\n')
}

// AppendBulkInt appends an integer as a bulk string.
func AppendBulkInt(dst []byte, n int64) []byte {
	var digits [20]byte
	return AppendBulk(dst, strconv.AppendInt(digits[:0], n, 10))
}

// AppendArray appends the head of an array; its n elements are to follow.
func AppendArray(dst []byte, n int) []byte { return appendHead(dst, '*', int64(n)) }

// AppendCommand appends a request, as clients send it.
func AppendCommand[T ~string | ~[]byte](dst []byte, args ...T) []byte {
	dst = AppendArray(dst, len(args))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

// AppendNull appends null in place of a string or number.
func (v Version) AppendNull(dst []byte) []byte {
	if v == RESP3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

// AppendNullArray appends null in place of an array.
func (v Version) AppendNullArray(dst []byte) []byte {
	if v == RESP3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "*-1\r\n"...)
}

// AppendMap appends the head of a map; n keys, each with its value after it, are to follow. In
// RESP2 it is an array of 2n.
func (v Version) AppendMap(dst []byte, n int) []byte {
	if v == RESP3 {
		return appendHead(dst, '%', int64(n))
	}
	return AppendArray(dst, 2*n)
}

// AppendSet appends the head of a set; its n elements are to follow. In RESP2 it is an array.
func (v Version) AppendSet(dst []byte, n int) []byte { return v.appendArrayAs(dst, '~', n) }

// AppendPush appends the head of a message that answers no request; n elements are to follow. In
// RESP2 it is an array.
func (v Version) AppendPush(dst []byte, n int) []byte { return v.appendArrayAs(dst, '>', n) }

func (v Version) appendArrayAs(dst []byte, kind byte, n int) []byte {
	if v != RESP3 {
		kind = '*'
	}
	return appendHead(dst, kind, int64(n))
}

// AppendBool appends true or false. In RESP2 it is 1 or 0.
func (v Version) AppendBool(dst []byte, b bool) []byte {
	switch {
	case v != RESP3 && b:
		return append(dst, ":1\r\n"...)
	case v != RESP3:
		return append(dst, ":0\r\n"...)
	case b:
		return append(dst, "#t\r\n"...)
	}
	return append(dst, "#f\r\n"...)
}

// AppendDouble appends a floating point number, in as few digits as say which it is. In RESP2 it is
// a bulk string.
func (v Version) AppendDouble(dst []byte, f float64) []byte {
	var room [32]byte
	digits := AppendFloat(room[:0], f)
	if v == RESP3 {
		dst = append(append(dst, ','), digits...)
		return append(dst, '\r', '\n')
	}
	return AppendBulk(dst, digits)
}

// AppendVerbatim appends text for people, whose format is three letters: "txt" or "mkd". In RESP2
// it is a bulk string without the format.
func (v Version) AppendVerbatim(dst []byte, format, text string) []byte {
	if v != RESP3 {
		return AppendBulk(dst, text)
	}
	dst = appendHead(dst, '=', int64(len(format)+1+len(text)))
	dst = append(append(dst, format...), ':')
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// AppendFloat appends f as redis-server writes numbers: the digits that "%.17g" would need, but no
// more than it takes to read the same number again; inf and -inf.
func AppendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case f == math.Trunc(f) && math.Abs(f) < 1e17:
		if f == 0 && math.Signbit(f) {
			return append(dst, "-0"...)
		}
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return appendG(dst, f)
}

// appendG writes f as C's "%.17g" does, with the fewest digits that suffice: an exponent only if it
// is below -4 or above 16, and of two digits at least.
func appendG(dst []byte, f float64) []byte {
	var room [32]byte
	e := strconv.AppendFloat(room[:0], f, 'e', -1, 64)
	at := len(e) - 1
	for e[at] != 'e' {
		at--
	}
	exponent, _ := strconv.Atoi(string(e[at+1:]))
	if exponent < -4 || exponent >= 17 {
		return append(dst, e...)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
