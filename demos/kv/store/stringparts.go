package store

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/loopwheel/loopwheel/codec/resp"
)

func lower(b []byte) string { return strings.ToLower(string(b)) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func setrange(x *Call) {
	offset, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	if offset < 0 {
		x.err("ERR offset is out of range")
		return
	}
	b, e, ok := x.str(x.Args[1])
	value := x.Args[3]
	switch {
	case !ok:
		return
	case len(value) == 0:
		x.int(len(b))
		return
	case offset > resp.DefaultMaxBulk || !x.checkLength(offset+int64(len(value))):
		if offset > resp.DefaultMaxBulk {
			x.err(errTooLong)
		}
		return
	}
	if e == nil {
		e = x.store(x.Args[1], nil, nil)
	}
	e.str = extend(e.str, int(offset)+len(value))
	copy(e.str[offset:], value)
	x.did(EventString, "setrange", x.Args[1])
	x.int(len(e.str))
}

// extend returns b with zeros behind it, if it is shorter than n.
func extend(b []byte, n int) []byte {
	if n > len(b) {
		b = append(b, make([]byte, n-len(b))...)
	}
	return b
}

func getrange(x *Call) {
	start, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	end, ok := x.parseInt(x.Args[3])
	if !ok {
		return
	}
	b, _, ok := x.str(x.Args[1])
	if !ok {
		return
	}
	if start < 0 && end < 0 && start > end {
		x.bulk(nil)
		return
	}
	if end < -int64(len(b)) { // before the start: the first byte, as in redis-server
		end = -int64(len(b))
	}
	from, to := span(start, end, len(b))
	x.bulk(b[from:to])
}

// span returns the part [from, to) of n things that the first and last one say, both counted from
// the end if negative.
func span(first, last int64, n int) (from, to int) {
	if first < 0 {
		first = max(0, first+int64(n))
	}
	if last < 0 {
		last += int64(n)
	}
	last = min(last, int64(n)-1)
	if first > last {
		return 0, 0
	}
	return int(first), int(last) + 1
}

func incr(x *Call, by int64) {
	b, e, ok := x.str(x.Args[1])
	if !ok {
		return
	}
	var n int64
	if e != nil {
		if n, ok = x.parseInt(b); !ok {
			return
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		x.err(errOverflow)
		return
	}
	n += by
	var room [20]byte
	x.store(x.Args[1], e, appendInt(room[:0], n))
	x.did(EventString, "incrby", x.Args[1])
	x.int64(n)
}

func incrby(x *Call) {
	if by, ok := x.parseInt(x.Args[2]); ok {
		incr(x, by)
	}
}

func decrby(x *Call) {
	by, ok := x.parseInt(x.Args[2])
	switch {
	case !ok:
	case by == math.MinInt64:
		x.err("ERR decrement would overflow")
	default:
		incr(x, -by)
	}
}

// addFloat adds as INCRBYFLOAT does; nil: an error was answered.
func (x *Call) addFloat(old, by []byte, notFloat string) []byte {
	a, ok := parseBig(old)
	if !ok {
		x.err(notFloat)
		return nil
	}
	b, ok := parseBig(by)
	if !ok {
		x.err(errNotFloat)
		return nil
	}
	if a.IsInf() || b.IsInf() {
		x.err(errNaN)
		return nil
	}
	sum := new(big.Float).SetPrec(64).Add(a, b)
	if sum.MantExp(nil) > bigMaxExp {
		x.err(errNaN)
		return nil
	}
	return appendBig(nil, sum)
}

func incrbyfloat(x *Call) {
	old, e, ok := x.str(x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		old = []byte("0")
	}
	value := x.addFloat(old, x.Args[2], errNotFloat)
	if value == nil {
		return
	}
	x.store(x.Args[1], e, value)
	x.did(EventString, "incrbyfloat", x.Args[1])
	x.log([]byte("SET"), x.Args[1], value, []byte("KEEPTTL"))
	x.bulk(value)
}

func (x *Call) parseBit(b []byte) (offset int64, ok bool) {
	n, ok := resp.ParseInt(b)
	if !ok || n < 0 || n>>3 >= resp.DefaultMaxBulk {
		x.err("ERR bit offset is not an integer or out of range")
		return 0, false
	}
	return n, true
}

func setbit(x *Call) {
	offset, ok := x.parseBit(x.Args[2])
	if !ok {
		return
	}
	if v := string(x.Args[3]); v != "0" && v != "1" {
		x.err("ERR bit is not an integer or out of range")
		return
	}
	_, e, ok := x.str(x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		e = x.store(x.Args[1], nil, nil)
	}
	size := len(e.str)
	e.str = extend(e.str, int(offset>>3)+1)
	at, bit := &e.str[offset>>3], byte(0x80)>>(offset&7)
	was, on := *at&bit != 0, x.Args[3][0] == '1'
	if *at &^= bit; on {
		*at |= bit
	}
	if was != on || size != len(e.str) {
		x.did(EventString, "setbit", x.Args[1])
	}
	x.bit(was)
}

func (x *Call) bit(on bool) {
	if on {
		x.int(1)
	} else {
		x.int(0)
	}
}

func getbit(x *Call) {
	offset, ok := x.parseBit(x.Args[2])
	if !ok {
		return
	}
	if b, _, ok := x.str(x.Args[1]); ok {
		x.bit(offset>>3 < int64(len(b)) && b[offset>>3]&(0x80>>(offset&7)) != 0)
	}
}
