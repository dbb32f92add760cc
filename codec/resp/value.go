package resp

import (
	"fmt"
	"strconv"
)

// maxDepth is how deep replies may be nested that Parse takes.
const maxDepth = 128

// A Value is a reply, or a part of one.
type Value struct {
	// Kind is the first byte on the wire: '+' simple string, '-' error, ':' integer, '$' bulk
	// string, '*' array, and of RESP3 '_' null, ',' double, '#' boolean, '(' big number, '!' bulk
	// error, '=' verbatim string, '%' map, '~' set, '>' push. RESP2's null string and null array
	// are '_', too.
	Kind byte

	// Str is the text of a string or error, and of numbers and booleans as they came. That of a
	// verbatim string begins with its format, as in "txt:". It is a piece of what was parsed.
	Str []byte

	// Int is the number if Kind is ':', and 1 for a boolean that is true.
	Int int64

	// Elems are the elements of an array, set or push; of a map the keys, each with its value after
	// it.
	Elems []Value

	// Attr are the attributes that came before the value, in pairs as in a map; usually none.
	Attr []Value
}

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.Kind == '_' }

// Err returns v as an error, nil if it is none.
func (v Value) Err() error {
	if v.Kind == '-' || v.Kind == '!' {
		return ReplyError(v.Str)
	}
	return nil
}

// A ReplyError is an error that the server answered: "ERR unknown command".
type ReplyError string

// Error returns the error as it came.
func (e ReplyError) Error() string { return string(e) }

// Parse makes a Value of a frame of a Client: one whole reply. Str points into frame. Replies
// nested deeper than 128 are refused.
func Parse(frame []byte) (Value, error) {
	v, rest, err := parse(frame, 0)
	if err == nil && len(rest) > 0 {
		err = malformed("bytes after the reply")
	}
	return v, err
}

func parse(data []byte, depth int) (v Value, rest []byte, err error) {
	if len(data) == 0 || kinds[data[0]] == 0 {
		return v, nil, malformed("not a reply")
	}
	if depth > maxDepth {
		return v, nil, tooLong(fmt.Sprintf("a reply nested deeper than %d", maxDepth))
	}
	v.Kind = data[0]
	line, next := replyLine(data, 1)
	if next == 0 {
		return v, nil, malformed("the reply is not whole")
	}
	v.Str, rest = line, data[next:]
	switch kinds[v.Kind] {
	case isLine:
		v.Int = int64(b2i(string(line) == "t"))
		return v, rest, nil
	case isEnd:
		return v, rest, nil
	}
	n, ok := parseInt(line)
	switch {
	case !ok:
		return v, nil, malformed("invalid length")
	case kinds[v.Kind] == isInt:
		v.Int = n
		return v, rest, nil
	case n < 0:
		return Value{Kind: '_'}, rest, nil
	case kinds[v.Kind] == isArray:
		return parseElems(v, rest, n, depth)
	case n > int64(len(rest)-2):
		return v, nil, malformed("the reply is not whole")
	}
	v.Str = rest[:n:n]
	return v, rest[n+2:], nil
}

// parseElems parses what belongs to an aggregate of n.
func parseElems(v Value, data []byte, n int64, depth int) (_ Value, rest []byte, err error) {
	v.Str = nil
	if v.Kind == '%' || v.Kind == '|' {
		n *= 2
	}
	if n > int64(len(data)) { // each takes some bytes
		return v, nil, malformed("the reply is not whole")
	}
	elems := make([]Value, n)
	for i := range elems {
		if elems[i], data, err = parse(data, depth+1); err != nil {
			return v, nil, err
		}
	}
	if v.Kind != '|' {
		v.Elems = elems
		return v, data, nil
	}
	v, data, err = parse(data, depth+1)
	v.Attr = append(elems, v.Attr...)
	return v, data, err
}

// Float returns the number that v is, or says in its text.
func (v Value) Float() (float64, error) { return strconv.ParseFloat(string(v.Str), 64) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
