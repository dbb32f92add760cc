package store

import (
	"math"
	"math/rand/v2"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "hset", Arity: -4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: hset},
	{Name: "hmset", Arity: -4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: hset},
	{Name: "hsetnx", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: hsetnx},
	{Name: "hget", Arity: 3, First: 1, Last: 1, Step: 1, run: hget},
	{Name: "hmget", Arity: -3, First: 1, Last: 1, Step: 1, run: hmget},
	{Name: "hdel", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: hdel},
	{Name: "hlen", Arity: 2, First: 1, Last: 1, Step: 1, run: hlen},
	{Name: "hstrlen", Arity: 3, First: 1, Last: 1, Step: 1, run: hstrlen},
	{Name: "hexists", Arity: 3, First: 1, Last: 1, Step: 1, run: hexists},
	{Name: "hkeys", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { hgetall(x, true, false) }},
	{Name: "hvals", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { hgetall(x, false, true) }},
	{Name: "hgetall", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { hgetall(x, true, true) }},
	{Name: "hincrby", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: hincrby},
	{Name: "hincrbyfloat", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: hincrbyfloat},
	{Name: "hrandfield", Arity: -2, Flags: Random, First: 1, Last: 1, Step: 1, run: hrandfield},
	{Name: "hscan", Arity: -3, First: 1, Last: 1, Step: 1, run: hscan},
})

func hset(x *Call) {
	if len(x.Args)%2 != 0 {
		x.err(WrongArgs(string(x.Args[0])))
		return
	}
	h, _, ok := create[hash](x, x.Args[1])
	if !ok {
		return
	}
	added := 0
	for i := 2; i < len(x.Args); i += 2 {
		if h.set(x.Args[i], string(x.Args[i+1])) {
			added++
		}
	}
	x.did(EventHash, "hset", x.Args[1])
	if is(x.Args[0], "HMSET") {
		x.ok()
	} else {
		x.int(added)
	}
}

func hsetnx(x *Call) {
	h, _, ok := create[hash](x, x.Args[1])
	if !ok {
		return
	}
	if h.has(string(x.Args[2])) {
		x.int(0)
		return
	}
	h.set(x.Args[2], string(x.Args[3]))
	x.did(EventHash, "hset", x.Args[1])
	x.int(1)
}

// field returns a field of a hash; found is false if there is none, ok if the key is something
// else.
func (x *Call) field() (v string, found, ok bool) {
	h, e, ok := lookup[hash](x, x.Args[1])
	if e == nil || !ok {
		return "", false, ok
	}
	v, found = h.get(x.Args[2])
	return v, found, true
}

func hget(x *Call) {
	v, found, ok := x.field()
	switch {
	case !ok:
	case found:
		x.bulkString(v)
	default:
		x.null()
	}
}

func hmget(x *Call) {
	h, e, ok := lookup[hash](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		h = new(hash)
	}
	x.array(len(x.Args) - 2)
	for _, f := range x.Args[2:] {
		if v, found := h.get(f); found {
			x.bulkString(v)
		} else {
			x.null()
		}
	}
}

func hdel(x *Call) {
	h, e, ok := lookup[hash](x, x.Args[1])
	if !ok {
		return
	}
	n := 0
	if e != nil {
		for _, f := range x.Args[2:] {
			if h.remove(string(f)) {
				n++
			}
		}
		if n > 0 {
			x.did(EventHash, "hdel", x.Args[1])
			x.delIfEmpty(e, h.len())
		}
	}
	x.int(n)
}

func hlen(x *Call) {
	if h, e, ok := lookup[hash](x, x.Args[1]); ok && e != nil {
		x.int(h.len())
	} else if ok {
		x.int(0)
	}
}

func hstrlen(x *Call) {
	if v, _, ok := x.field(); ok {
		x.int(len(v))
	}
}

func hexists(x *Call) {
	if _, found, ok := x.field(); ok {
		x.bit(found)
	}
}

func hgetall(x *Call, fields, values bool) {
	h, e, ok := lookup[hash](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		h = new(hash)
	}
	if fields && values {
		x.Out = x.V.AppendMap(x.Out, h.len())
	} else {
		x.array(h.len())
	}
	for f := range h.list.all() {
		if fields {
			x.bulkString(f.key)
		}
		if values {
			x.bulkString(f.val)
		}
	}
}

func hincrby(x *Call) {
	by, ok := x.parseInt(x.Args[3])
	if !ok {
		return
	}
	old, found, ok := x.field()
	if !ok {
		return
	}
	var n int64
	if found {
		if n, ok = resp.ParseInt(old); !ok {
			x.err("ERR hash value is not an integer")
			return
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		x.err(errOverflow)
		return
	}
	h, _, _ := create[hash](x, x.Args[1])
	h.set(x.Args[2], string(num(n+by)))
	x.did(EventHash, "hincrby", x.Args[1])
	x.int64(n + by)
}

func hincrbyfloat(x *Call) {
	if by, ok := parseBig(x.Args[3]); !ok {
		x.err(errNotFloat)
		return
	} else if by.IsInf() {
		x.err("ERR value is NaN or Infinity")
		return
	}
	old, found, ok := x.field()
	if !ok {
		return
	}
	was := []byte("0")
	if found {
		was = []byte(old)
	}
	value := x.addFloat(was, x.Args[3], "ERR hash value is not a float")
	if value == nil {
		return
	}
	h, _, _ := create[hash](x, x.Args[1])
	h.set(x.Args[2], string(value))
	x.did(EventHash, "hincrbyfloat", x.Args[1])
	x.log([]byte("HSET"), x.Args[1], x.Args[2], value)
	x.bulk(value)
}

// parseRandom reads the count of SRANDMEMBER and the like, and a word that may be behind it.
func (x *Call) parseRandom(word string) (n int64, with, ok bool) {
	if n, ok = x.parseInt(x.Args[2]); !ok {
		return 0, false, false
	}
	with = len(x.Args) == 4 && word != "" && is(x.Args[3], word)
	switch {
	case n == math.MinInt64:
		x.err(errNotWithin64)
	case len(x.Args) > 3 && !with:
		x.err(errSyntax)
	case with && (n < -math.MaxInt64/2 || n > math.MaxInt64/2):
		x.err(errOutOfRange)
	default:
		return n, with, true
	}
	return 0, false, false
}

// maxRepeats is how many elements an answer may have that may be the same.
const maxRepeats = 1 << 24

// places returns which of size entries are chosen: n different ones, or -n that may be the same.
// false: that are too many, which was answered.
func (x *Call) places(n int64, size int) (chosen []int, ok bool) {
	if n >= 0 {
		return sample(int(min(n, int64(size))), size), true
	}
	if n < -maxRepeats {
		x.err(errOutOfRange)
		return nil, false
	}
	chosen = make([]int, -n)
	for i := range chosen {
		chosen[i] = rand.IntN(size)
	}
	return chosen, true
}

// pairs begins an answer of n pairs: in RESP3 arrays of two, in RESP2 one array of all.
func (x *Call) pairs(n int) {
	if x.V == resp.RESP3 {
		x.array(n)
	} else {
		x.array(2 * n)
	}
}

// pair begins one of them.
func (x *Call) pair() {
	if x.V == resp.RESP3 {
		x.array(2)
	}
}

func hrandfield(x *Call) {
	if len(x.Args) == 2 {
		h, e, ok := lookup[hash](x, x.Args[1])
		switch {
		case !ok:
		case e == nil:
			x.null()
		default:
			x.bulkString(h.random().key)
		}
		return
	}
	n, values, ok := x.parseRandom("WITHVALUES")
	if !ok {
		return
	}
	h, e, ok := lookup[hash](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.array(0)
		return
	}
	chosen, ok := x.places(n, h.len())
	if !ok {
		return
	}
	if values {
		x.pairs(len(chosen))
	} else {
		x.array(len(chosen))
	}
	for _, i := range chosen {
		if values {
			x.pair()
			x.bulkString(h.list.at(i).key)
			x.bulkString(h.list.at(i).val)
		} else {
			x.bulkString(h.list.at(i).key)
		}
	}
}

func hscan(x *Call) {
	h, cursor, o, ok := scanned[hash](x)
	if !ok {
		return
	}
	from, to, next := h.step(cursor, o.count, func(v string) int { return len(v) })
	n := 0
	var elems []byte
	for f := range h.list.part(from, to) {
		if o.matches(f.key) {
			elems = resp.AppendBulk(resp.AppendBulk(elems, f.key), f.val)
			n += 2
		}
	}
	x.replyScan(next, n, elems)
}
