package store

import (
	"slices"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "sadd", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: sadd},
	{Name: "srem", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: srem},
	{Name: "sismember", Arity: 3, First: 1, Last: 1, Step: 1, run: sismember},
	{Name: "smismember", Arity: -3, First: 1, Last: 1, Step: 1, run: smismember},
	{Name: "smembers", Arity: 2, First: 1, Last: 1, Step: 1, run: smembers},
	{Name: "scard", Arity: 2, First: 1, Last: 1, Step: 1, run: scard},
	{Name: "spop", Arity: -2, Flags: Write | Random, First: 1, Last: 1, Step: 1, run: spop},
	{Name: "srandmember", Arity: -2, Flags: Random, First: 1, Last: 1, Step: 1, run: srandmember},
	{Name: "smove", Arity: 4, Flags: Write, First: 1, Last: 2, Step: 1, run: smove},
	{Name: "sscan", Arity: -3, First: 1, Last: 1, Step: 1, run: sscan},
	{Name: "sinter", Arity: -2, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[1:], nil, inter) }},
	{Name: "sunion", Arity: -2, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[1:], nil, union) }},
	{Name: "sdiff", Arity: -2, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[1:], nil, diff) }},
	{Name: "sinterstore", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[2:], x.Args[1], inter) }},
	{Name: "sunionstore", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[2:], x.Args[1], union) }},
	{Name: "sdiffstore", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: -1, Step: 1, run: func(x *Call) { x.combine(x.Args[2:], x.Args[1], diff) }},
	{Name: "sintercard", Arity: -3, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: sintercard},
})

func sadd(x *Call) {
	s, _, ok := create[set](x, x.Args[1])
	if !ok {
		return
	}
	added := 0
	for _, m := range x.Args[2:] {
		if s.set(m, struct{}{}) {
			added++
		}
	}
	if added > 0 {
		x.did(EventSet, "sadd", x.Args[1])
	}
	x.int(added)
}

func srem(x *Call) {
	s, e, ok := lookup[set](x, x.Args[1])
	if !ok {
		return
	}
	n := 0
	if e != nil {
		for _, m := range x.Args[2:] {
			if s.remove(string(m)) {
				n++
			}
		}
		if n > 0 {
			x.did(EventSet, "srem", x.Args[1])
			x.delIfEmpty(e, s.len())
		}
	}
	x.int(n)
}

// setAt returns the set at a key, an empty one if there is none; false: an error was answered.
func (x *Call) setAt(key []byte) (*set, bool) {
	s, e, ok := lookup[set](x, key)
	if e == nil {
		s = new(set)
	}
	return s, ok
}

func sismember(x *Call) {
	if s, ok := x.setAt(x.Args[1]); ok {
		x.bit(s.has(string(x.Args[2])))
	}
}

func smismember(x *Call) {
	s, ok := x.setAt(x.Args[1])
	if !ok {
		return
	}
	x.array(len(x.Args) - 2)
	for _, m := range x.Args[2:] {
		x.bit(s.has(string(m)))
	}
}

func smembers(x *Call) {
	if s, ok := x.setAt(x.Args[1]); ok {
		x.Out = x.V.AppendSet(x.Out, s.len())
		for m := range s.list.all() {
			x.bulkString(m.key)
		}
	}
}

func scard(x *Call) {
	if s, ok := x.setAt(x.Args[1]); ok {
		x.int(s.len())
	}
}

func spop(x *Call) {
	n, many, ok := x.popCount(errSyntax)
	if !ok {
		return
	}
	s, e, ok := lookup[set](x, x.Args[1])
	switch {
	case !ok:
	case e == nil && many:
		x.Out = x.V.AppendSet(x.Out, 0)
	case e == nil:
		x.null()
	case many:
		n = min(n, int64(s.len()))
		x.Out = x.V.AppendSet(x.Out, int(n))
		x.spop(e, s, n)
	default:
		x.spop(e, s, 1)
	}
}

// spop answers n elements, and removes them. The log says which, as chance will be another.
func (x *Call) spop(e *entry, s *set, n int64) {
	removed := [][]byte{[]byte("SREM"), []byte(e.name)}
	for range n {
		m := s.random().key
		s.remove(m)
		x.bulkString(m)
		removed = append(removed, []byte(m))
	}
	if n == 0 {
		return
	}
	x.did(EventSet, "spop", []byte(e.name))
	x.delIfEmpty(e, s.len())
	x.log(removed...)
}

func srandmember(x *Call) {
	if len(x.Args) == 2 {
		s, e, ok := lookup[set](x, x.Args[1])
		switch {
		case !ok:
		case e == nil:
			x.null()
		default:
			x.bulkString(s.random().key)
		}
		return
	}
	n, _, ok := x.parseRandom("")
	if !ok {
		return
	}
	s, ok := x.setAt(x.Args[1])
	if !ok {
		return
	}
	if s.len() == 0 {
		x.array(0)
		return
	}
	chosen, ok := x.places(n, s.len())
	if !ok {
		return
	}
	x.array(len(chosen))
	for _, i := range chosen {
		x.bulkString(s.list.at(i).key)
	}
}

func smove(x *Call) {
	from, to, m := x.Args[1], x.Args[2], x.Args[3]
	s, e, ok := lookup[set](x, from)
	if !ok {
		return
	}
	if e == nil {
		x.int(0)
		return
	}
	if _, ok := x.setAt(to); !ok {
		return
	}
	if string(from) == string(to) {
		x.bit(s.has(string(m)))
		return
	}
	if !s.remove(string(m)) {
		x.int(0)
		return
	}
	x.did(EventSet, "srem", from)
	x.delIfEmpty(e, s.len())
	dst, _, _ := create[set](x, to)
	if dst.set(m, struct{}{}) {
		x.did(EventSet, "sadd", to)
	}
	x.int(1)
}

func sscan(x *Call) {
	s, cursor, o, ok := scanned[set](x)
	if !ok {
		return
	}
	from, to, next := s.step(cursor, o.count, func(struct{}) int { return 0 })
	n := 0
	var elems []byte
	for m := range s.list.part(from, to) {
		if o.matches(m.key) {
			elems = resp.AppendBulk(elems, m.key)
			n++
		}
	}
	x.replyScan(next, n, elems)
}

func inter(sets []*set) *set {
	smallest := slices.MinFunc(sets, func(a, b *set) int { return a.len() - b.len() })
	result := new(set)
next:
	for m := range smallest.list.all() {
		for _, s := range sets {
			if !s.has(m.key) {
				continue next
			}
		}
		result.add(m.key, struct{}{})
	}
	return result
}

func union(sets []*set) *set {
	result := new(set)
	for _, s := range sets {
		for m := range s.list.all() {
			if !result.has(m.key) {
				result.add(m.key, struct{}{})
			}
		}
	}
	return result
}

func diff(sets []*set) *set {
	result := new(set)
next:
	for m := range sets[0].list.all() {
		for _, s := range sets[1:] {
			if s.has(m.key) {
				continue next
			}
		}
		result.add(m.key, struct{}{})
	}
	return result
}

func (x *Call) setsAt(keys [][]byte) (sets []*set, ok bool) {
	for _, key := range keys {
		s, ok := x.setAt(key)
		if !ok {
			return nil, false
		}
		sets = append(sets, s)
	}
	return sets, true
}

// combine answers what op makes of the sets, or stores it.
func (x *Call) combine(keys [][]byte, to []byte, op func([]*set) *set) {
	sets, ok := x.setsAt(keys)
	if !ok {
		return
	}
	result := op(sets)
	if to == nil {
		x.Out = x.V.AppendSet(x.Out, result.len())
		for m := range result.list.all() {
			x.bulkString(m.key)
		}
		return
	}
	x.replace(to, result, result.len(), EventSet, lower(x.Args[0]))
	x.int(result.len())
}

// replace stores a value of n elements at a key, whatever was there; without elements the key goes.
func (x *Call) replace(to []byte, val any, n int, class Event, event string) {
	old := x.DB.get(to)
	if old != nil {
		x.DB.drop(old)
	}
	if n > 0 {
		e := x.DB.put(to)
		e.val = val
		x.DB.signal(e)
		x.did(class, event, to)
	} else if old != nil {
		x.did(EventGeneric, "del", to)
	}
}

func sintercard(x *Call) {
	keys, rest, ok := x.parseNumKeys(1)
	if !ok {
		return
	}
	limit, ok := x.parseLimit(rest)
	if !ok {
		return
	}
	if sets, ok := x.setsAt(keys); ok {
		x.card(inter(sets).len(), limit)
	}
}

// parseLimit reads the LIMIT of SINTERCARD and ZINTERCARD, 0 if there is none.
func (x *Call) parseLimit(args [][]byte) (limit int64, ok bool) {
	for i := 0; i < len(args); i += 2 {
		if !is(args[i], "LIMIT") || i+1 == len(args) {
			x.err(errSyntax)
			return 0, false
		}
		if limit, ok = resp.ParseInt(args[i+1]); !ok || limit < 0 {
			x.err("ERR LIMIT can't be negative")
			return 0, false
		}
	}
	return limit, true
}

// card answers a number, up to a limit if that is not 0.
func (x *Call) card(n int, limit int64) {
	if limit > 0 {
		n = min(n, int(limit))
	}
	x.int(n)
}

// parseNumKeys reads the number of keys at args[i], and the keys behind it.
func (x *Call) parseNumKeys(i int) (keys, rest [][]byte, ok bool) {
	n, ok := resp.ParseInt(x.Args[i])
	switch {
	case !ok || n < 1:
		x.err("ERR numkeys should be greater than 0")
	case n > int64(len(x.Args)-i-1):
		x.err("ERR Number of keys can't be greater than number of args")
	default:
		return x.Args[i+1 : i+1+int(n)], x.Args[i+1+int(n):], true
	}
	return nil, nil, false
}
