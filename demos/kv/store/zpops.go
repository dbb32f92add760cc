package store

import "math"

var _ = register([]Command{
	{Name: "zpopmin", Arity: -2, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { zpop(x, false) }},
	{Name: "zpopmax", Arity: -2, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { zpop(x, true) }},
	{Name: "bzpopmin", Arity: -3, Flags: Write | Blocking, First: 1, Last: -2, Step: 1, run: func(x *Call) { bzpop(x, false) }},
	{Name: "bzpopmax", Arity: -3, Flags: Write | Blocking, First: 1, Last: -2, Step: 1, run: func(x *Call) { bzpop(x, true) }},
	{Name: "zmpop", Arity: -4, Flags: Write, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: func(x *Call) { mpop(x, (*Call).parseZmpop) }},
	{Name: "bzmpop", Arity: -5, Flags: Write | Blocking, Keys: func(a [][]byte) [][]byte { return counted(a, 2) }, run: func(x *Call) { bmpop(x, (*Call).parseZmpop) }},
})

// take removes up to n members from an end.
func (x *Call) take(e *entry, z *zset, n int, last bool) []scored {
	n = min(n, z.len())
	taken := z.slice(0, n, false)
	event := "zpopmin"
	if last {
		taken, event = z.slice(z.len()-n, z.len(), true), "zpopmax"
	}
	for _, s := range taken {
		z.remove(s.member)
	}
	x.removed(e, z, n, event)
	x.log([]byte(event), []byte(e.name), num(int64(n)))
	return taken
}

func zpop(x *Call, last bool) {
	n, many, ok := x.popCount(errSyntax)
	if !ok {
		return
	}
	z, e, ok := lookup[zset](x, x.Args[1])
	switch {
	case !ok:
	case e == nil || n == 0:
		x.array(0)
	case many:
		x.members(x.take(e, z, int(min(n, math.MaxInt32)), last), true)
	default:
		s := x.take(e, z, 1, last)[0]
		x.array(2)
		x.bulkString(s.member)
		x.double(s.score)
	}
}

func bzpop(x *Call, last bool) {
	at := len(x.Args) - 1
	timeout, ok := x.parseTimeout(x.Args[at])
	if !ok {
		return
	}
	x.tryKeys(x.Args[1:at], timeout, func(x *Call, key []byte) bool {
		z, e := held[zset](x, key)
		if z == nil {
			return false
		}
		s := x.take(e, z, 1, last)[0]
		x.array(3)
		x.bulk(key)
		x.bulkString(s.member)
		x.double(s.score)
		return true
	})
}

func (x *Call) parseZmpop(i int) (keys [][]byte, try func(x *Call, key []byte) bool, ok bool) {
	keys, last, count, ok := x.parseMpop(i, "MAX", "MIN")
	if !ok {
		return nil, nil, false
	}
	return keys, func(x *Call, key []byte) bool {
		z, e := held[zset](x, key)
		if z == nil {
			return false
		}
		taken := x.take(e, z, count, last)
		x.array(2)
		x.bulk(key)
		x.array(len(taken))
		for _, s := range taken {
			x.array(2)
			x.bulkString(s.member)
			x.double(s.score)
		}
		return true
	}, true
}
