package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/loopwheel/loopwheel/codec"
)

// Limits of a request, in bytes but for maxArgs, and of a reply. Memory grows with what has come, not
// with lengths that were announced.
const (
	maxLine    = 64 << 10 // an inline command, and the line of a length
	maxValue   = 16 << 20 // an argument
	maxArgs    = 1 << 20  // arguments, the name included
	maxRequest = 64 << 20 // the whole
	maxReply   = maxValue // the values of MGET, and the keys of SCAN
)

// keptArgs is for how many arguments a connection keeps room between requests.
const keptArgs = 64

// requests is the codec of the Redis serialization protocol, RESP2, for servers. A request is an
// array of bulk strings, or a line of words:
//
//	*2\r\n$3\r\nGET\r\n$1\r\nk\r\n        the arguments "GET" "k"
//	GET k\r\n                            the same, inline
//
// The frame is the request as it came; what a handler wants are args, which are pieces of it. Input
// that is no request makes no error but a frame of its own, so that the replies to the requests
// before it, which other loops may still make, can be sent first. Nothing after it is decoded.
type requests struct {
	args   [][]byte // at least one; valid until OnMessage returns
	broken string   // what is wrong with the input, in redis-server's words; args are none then

	// Of an array that has not come as a whole: offsets, as the input may move.
	spans [][2]int // of arguments, from and to
	count int      // of arguments, 0 before that is known
	next  int      // where the next argument begins
}

// New implements codec.Stateful: it returns the codec of one connection.
func (*requests) New() codec.Codec { return &requests{} }

// AppendFrame implements codec.Codec. A frame is a reply, as the functions below make it.
func (*requests) AppendFrame(dst, reply []byte) ([]byte, error) { return append(dst, reply...), nil }

// Decode implements codec.Codec.
func (r *requests) Decode(data []byte) (advance int, frame []byte, err error) {
	return r.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer: no argument is read again for each piece that comes.
func (r *requests) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	switch {
	case len(data) == 0:
		return 0, nil, nil
	case r.broken != "":
		return len(data), nil, nil
	case data[0] == '*':
		advance, frame = r.array(data, seen)
	default:
		advance, frame = r.inline(data, seen)
	}
	if r.broken != "" {
		r.args = nil
		return len(data), data, nil
	}
	return advance, frame, nil
}

// fail makes a frame of input that is no request.
func (r *requests) fail(why string) (advance int, frame []byte) {
	r.broken = why
	return 0, nil
}

// array decodes an array of bulk strings. Like redis-server, it does not look at the two bytes that
// end a string.
func (r *requests) array(data []byte, seen int) (advance int, frame []byte) {
	if seen == 0 {
		r.spans, r.args, r.count = r.spans[:0], r.args[:0], 0
		if max(cap(r.spans), cap(r.args)) > keptArgs {
			r.spans, r.args = nil, nil
		}
	}
	if r.count == 0 {
		n, next, ok := r.number(data, 0, "too big mbulk count string")
		switch {
		case next == 0:
			return 0, nil
		case !ok || n > maxArgs:
			return r.fail("invalid multibulk length")
		case n <= 0:
			return next, nil
		}
		r.count, r.next = int(n), next
	}
	for len(r.spans) < r.count {
		if r.next >= len(data) {
			return 0, nil
		}
		n, from, ok := r.number(data, r.next, "too big bulk count string")
		switch {
		case from == 0:
			return 0, nil
		case data[r.next] != '$':
			return r.fail("expected '$', got '" + cString([]byte{data[r.next], '\''}))
		case !ok || n < 0 || n > maxValue:
			return r.fail("invalid bulk length")
		case from+int(n)+2 > maxRequest:
			return r.fail("too big request")
		case from+int(n)+2 > len(data):
			return 0, nil
		}
		r.spans = append(r.spans, [2]int{from, from + int(n)})
		r.next = from + int(n) + 2
	}
	r.args = slices.Grow(r.args, r.count)
	for _, s := range r.spans {
		r.args = append(r.args, data[s[0]:s[1]:s[1]])
	}
	return r.next, data[:r.next]
}

// number reads the line at data[at:], which is a byte and a number, and returns where the next line
// begins: 0 if that has not come yet.
func (r *requests) number(data []byte, at int, tooLong string) (n int64, next int, ok bool) {
	rest := data[at:]
	if len(rest) > 3 && rest[2] == '\r' && rest[1]-'0' <= 9 { // as most are
		return int64(rest[1] - '0'), at + 4, true
	}
	end := bytes.IndexByte(rest[:min(len(rest), maxLine)], '\r')
	if end < 0 && len(rest) >= maxLine {
		r.broken = tooLong
	}
	if end < 0 || end+2 > len(rest) {
		return 0, 0, false
	}
	n, ok = parseInt(rest[min(1, end):end])
	return n, at + end + 2, ok
}

// inline decodes a line of words.
func (r *requests) inline(data []byte, seen int) (advance int, frame []byte) {
	end := bytes.IndexByte(data[seen:], '\n')
	if end < 0 && len(data) > maxLine || seen+end > maxLine {
		return r.fail("too big inline request")
	}
	if end < 0 {
		return 0, nil
	}
	end += seen + 1
	words, ok := split(data[:end])
	if !ok {
		r.broken = "unbalanced quotes in request"
	}
	if r.args = words; len(words) == 0 {
		return end, nil
	}
	return end, data[:end]
}

// split returns the words of a line, which ends with a space. A word may have parts in 'quotes',
// where \' is a quote, or in "quotes" with escapes. It reports false if a quote is not closed, or
// is not the end of its word.
func split(line []byte) (words [][]byte, ok bool) {
	var word []byte // nil between words
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		switch b := line[i]; {
		case quote == 0 && isSpace(b):
			if word != nil {
				words, word = append(words, word), nil
			}
		case quote == 0 && (b == '"' || b == '\''):
			quote, word = b, append([]byte{}, word...)
		case b == quote && i+1 < len(line) && !isSpace(line[i+1]):
			return nil, false
		case b == quote && quote != 0:
			quote = 0
		case b == '\\' && i+1 < len(line) && (quote == '"' || quote == '\'' && line[i+1] == '\''):
			i++
			b = line[i]
			if n := strings.IndexByte("nrtba", b); n >= 0 {
				b = "\n\r\t\b\a"[n]
			} else if x, err := strconv.ParseUint(string(line[i+1:min(i+3, len(line))]), 16, 8); b == 'x' && err == nil && i+2 < len(line) {
				i += 2
				b = byte(x)
			}
			word = append(word, b)
		default:
			word = append(word, b)
		}
	}
	return words, quote == 0
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// parseInt parses a number as redis-server does: an optional minus, then digits without leading
// zeros, and within 64 bits.
func parseInt(b []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	var room [20]byte
	return n, err == nil && string(strconv.AppendInt(room[:0], n, 10)) == string(b)
}

// Replies.
const (
	replyOK   = "+OK\r\n"
	replyNull = "$-1\r\n"
)

// appendError appends an error. Line ends in text become spaces, as the reply would end there.
func appendError(dst []byte, text string) []byte {
	dst = append(dst, '-')
	for _, b := range []byte(text) {
		if b == '\r' || b == '\n' {
			b = ' '
		}
		dst = append(dst, b)
	}
	return append(dst, '\r', '\n')
}

func appendInt(dst []byte, n int64) []byte { return appendHead(dst, ':', n) }

// appendBulk appends a bulk string, which may be any bytes.
func appendBulk[T ~string | ~[]byte](dst []byte, b T) []byte {
	dst = append(appendHead(dst, '$', int64(len(b))), b...)
	return append(dst, '\r', '\n')
}

// appendHead appends the first line of a reply. One of kind * is for an array: n elements follow.
func appendHead(dst []byte, kind byte, n int64) []byte {
	dst = strconv.AppendInt(append(dst, kind), n, 10)
	return append(dst, '\r', '\n')
}
