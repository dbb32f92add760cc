package store

import (
	"math"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "zadd", Arity: -4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { zadd(x, zaddOptions{}) }},
	{Name: "zincrby", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { zadd(x, zaddOptions{incr: true}) }},
	{Name: "zrem", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: zrem},
	{Name: "zcard", Arity: 2, First: 1, Last: 1, Step: 1, run: zcard},
	{Name: "zscore", Arity: 3, First: 1, Last: 1, Step: 1, run: zscore},
	{Name: "zmscore", Arity: -3, First: 1, Last: 1, Step: 1, run: zmscore},
	{Name: "zrank", Arity: 3, First: 1, Last: 1, Step: 1, run: func(x *Call) { zrank(x, false) }},
	{Name: "zrevrank", Arity: 3, First: 1, Last: 1, Step: 1, run: func(x *Call) { zrank(x, true) }},
	{Name: "zrandmember", Arity: -2, Flags: Random, First: 1, Last: 1, Step: 1, run: zrandmember},
	{Name: "zscan", Arity: -3, First: 1, Last: 1, Step: 1, run: zscan},
})

// zsetAt returns the sorted set at a key, an empty one if there is none; false: an error was
// answered.
func (x *Call) zsetAt(key []byte) (*zset, bool) {
	z, e, ok := lookup[zset](x, key)
	if e == nil {
		z = new(zset)
	}
	return z, ok
}

type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// parseZadd adds the options to those of the command, and returns where the scores begin.
func (x *Call) parseZadd(o zaddOptions) (_ zaddOptions, from int, ok bool) {
	from = 2
options:
	for ; from < len(x.Args); from++ {
		switch a := x.Args[from]; {
		case is(a, "NX"):
			o.nx = true
		case is(a, "XX"):
			o.xx = true
		case is(a, "GT"):
			o.gt = true
		case is(a, "LT"):
			o.lt = true
		case is(a, "CH"):
			o.ch = true
		case is(a, "INCR"):
			o.incr = true
		default:
			break options
		}
	}
	n := len(x.Args) - from
	switch {
	case n == 0 || n%2 != 0:
		x.err(errSyntax)
	case o.nx && o.xx:
		x.err("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.nx || o.lt && o.nx || o.gt && o.lt:
		x.err("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && n > 2:
		x.err("ERR INCR option supports a single increment-element pair")
	default:
		return o, from, true
	}
	return o, 0, false
}

func zadd(x *Call, o zaddOptions) {
	o, from, ok := x.parseZadd(o)
	if !ok {
		return
	}
	scores := make([]float64, 0, 4)
	for i := from; i < len(x.Args); i += 2 {
		f, ok := parseFloat(x.Args[i])
		if !ok {
			x.err(errNotFloat)
			return
		}
		scores = append(scores, f)
	}
	x.zaddAll(o, scores, from)
}

// zaddAll adds the members behind the scores at x.Args[from:].
func (x *Call) zaddAll(o zaddOptions, scores []float64, from int) {
	z, e, ok := lookup[zset](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil && !o.xx {
		z, e, _ = create[zset](x, x.Args[1])
	}
	added, updated, done := 0, 0, false
	var last float64
	for i, score := range scores {
		if e == nil {
			break
		}
		score, isNew, ok := z.apply(o, x.Args[from+2*i+1], score)
		if math.IsNaN(score) {
			x.err("ERR resulting score is not a number (NaN)")
			return
		}
		last, done = score, ok
		if ok && isNew {
			added++
		} else if ok && z.changed {
			updated++
		}
	}
	x.zadded(o, e, z, added, updated, last, done)
}

// apply adds one member. It reports false if the options forbid that.
func (z *zset) apply(o zaddOptions, member []byte, score float64) (result float64, isNew, ok bool) {
	old, found := z.scores.get(member)
	z.changed = false
	if o.nx && found || o.xx && !found {
		return old, false, false
	}
	if o.incr && found {
		score += old
	}
	if math.IsNaN(score) || found && (o.gt && score <= old || o.lt && score >= old) {
		return score, false, false
	}
	z.changed = !found || score != old
	return score, z.set(member, plainZero(score)), true
}

func (x *Call) zadded(o zaddOptions, e *entry, z *zset, added, updated int, last float64, done bool) {
	if added+updated > 0 {
		event := "zadd"
		if o.incr {
			event = "zincr"
		}
		x.did(EventZset, event, x.Args[1])
	}
	if e != nil {
		if z.len() == 0 {
			x.DB.drop(e) // made for nothing
		} else if added > 0 {
			x.DB.signal(e)
		}
	}
	switch {
	case o.incr && done:
		x.double(last)
	case o.incr:
		x.null()
	case o.ch:
		x.int(added + updated)
	default:
		x.int(added)
	}
}

func zrem(x *Call) {
	z, e, ok := lookup[zset](x, x.Args[1])
	if !ok {
		return
	}
	n := 0
	if e != nil {
		for _, m := range x.Args[2:] {
			if z.remove(string(m)) {
				n++
			}
		}
		x.removed(e, z, n, "zrem")
	}
	x.int(n)
}

// removed says that n members were removed.
func (x *Call) removed(e *entry, z *zset, n int, event string) {
	if n > 0 {
		x.did(EventZset, event, []byte(e.name))
		x.delIfEmpty(e, z.len())
	}
}

func zcard(x *Call) {
	if z, ok := x.zsetAt(x.Args[1]); ok {
		x.int(z.len())
	}
}

func (x *Call) score(z *zset, member []byte) {
	if score, ok := z.scores.get(member); ok {
		x.double(score)
	} else {
		x.null()
	}
}

func zscore(x *Call) {
	if z, ok := x.zsetAt(x.Args[1]); ok {
		x.score(z, x.Args[2])
	}
}

func zmscore(x *Call) {
	z, ok := x.zsetAt(x.Args[1])
	if !ok {
		return
	}
	x.array(len(x.Args) - 2)
	for _, m := range x.Args[2:] {
		x.score(z, m)
	}
}

func zrank(x *Call, reverse bool) {
	z, ok := x.zsetAt(x.Args[1])
	if !ok {
		return
	}
	rank, found := z.rank(x.Args[2])
	switch {
	case !found:
		x.null()
	case reverse:
		x.int(z.len() - 1 - rank)
	default:
		x.int(rank)
	}
}

func zrandmember(x *Call) {
	if len(x.Args) == 2 {
		z, ok := x.zsetAt(x.Args[1])
		switch {
		case !ok:
		case z.len() == 0:
			x.null()
		default:
			x.bulkString(z.scores.random().key)
		}
		return
	}
	n, with, ok := x.parseRandom("WITHSCORES")
	if !ok {
		return
	}
	z, ok := x.zsetAt(x.Args[1])
	if !ok {
		return
	}
	if z.len() == 0 {
		x.array(0)
		return
	}
	chosen, ok := x.places(n, z.len())
	if !ok {
		return
	}
	members := make([]scored, len(chosen))
	for k, i := range chosen {
		members[k] = scored{z.scores.list.at(i).val, z.scores.list.at(i).key}
	}
	x.members(members, with)
}

// members answers members, with their scores or without.
func (x *Call) members(members []scored, scores bool) {
	if scores {
		x.pairs(len(members))
	} else {
		x.array(len(members))
	}
	for _, m := range members {
		if scores {
			x.pair()
		}
		x.bulkString(m.member)
		if scores {
			x.double(m.score)
		}
	}
}

func zscan(x *Call) {
	z, cursor, o, ok := scanned[zset](x)
	if !ok {
		return
	}
	from, to, next := z.scores.step(cursor, o.count, func(float64) int { return 0 })
	n := 0
	var elems []byte
	for m := range z.scores.list.part(from, to) {
		if o.matches(m.key) {
			elems = resp.AppendBulk(elems, m.key)
			elems = resp.AppendBulk(elems, appendStored(nil, m.val))
			n += 2
		}
	}
	x.replyScan(next, n, elems)
}
