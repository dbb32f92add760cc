package store

import (
	"math"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "lpush", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { push(x, true, false) }},
	{Name: "rpush", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { push(x, false, false) }},
	{Name: "lpushx", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { push(x, true, true) }},
	{Name: "rpushx", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { push(x, false, true) }},
	{Name: "lpop", Arity: -2, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { pop(x, true) }},
	{Name: "rpop", Arity: -2, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { pop(x, false) }},
	{Name: "llen", Arity: 2, First: 1, Last: 1, Step: 1, run: llen},
	{Name: "lindex", Arity: 3, First: 1, Last: 1, Step: 1, run: lindex},
	{Name: "linsert", Arity: 5, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: linsert},
	{Name: "lrange", Arity: 4, First: 1, Last: 1, Step: 1, run: lrange},
	{Name: "lrem", Arity: 4, Flags: Write, First: 1, Last: 1, Step: 1, run: lrem},
	{Name: "lset", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: lset},
	{Name: "ltrim", Arity: 4, Flags: Write, First: 1, Last: 1, Step: 1, run: ltrim},
	{Name: "lpos", Arity: -3, First: 1, Last: 1, Step: 1, run: lpos},
})

func push(x *Call, front, onlyIfThere bool) {
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		if onlyIfThere {
			x.int(0)
			return
		}
		l, e, _ = create[list](x, x.Args[1])
	}
	for _, a := range x.Args[2:] {
		pushOne(l, string(a), front)
	}
	x.DB.signal(e)
	x.did(EventList, pushEvent(front), x.Args[1])
	x.int(l.Len())
}

func pushEvent(front bool) string {
	if front {
		return "lpush"
	}
	return "rpush"
}

func popEvent(front bool) string {
	if front {
		return "lpop"
	}
	return "rpop"
}

func pushOne(l *list, v string, front bool) {
	if front {
		l.PushFront(v)
	} else {
		l.PushBack(v)
	}
}

func popOne(l *list, front bool) string {
	if front {
		return l.PopFront()
	}
	return l.PopBack()
}

func pop(x *Call, front bool) {
	n, many, ok := x.popCount("")
	if !ok {
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	switch {
	case !ok:
	case e == nil && many:
		x.nullArray()
	case e == nil:
		x.null()
	case many && n == 0:
		x.array(0)
	case many:
		x.popMany(e, l, int(min(n, int64(l.Len()))), front)
	default:
		x.bulkString(popOne(l, front))
		x.popped(e, l, front)
	}
}

// popMany answers n elements as an array, and removes them.
func (x *Call) popMany(e *entry, l *list, n int, front bool) {
	x.array(n)
	for range n {
		x.bulkString(popOne(l, front))
	}
	x.popped(e, l, front)
}

// popped says that something was taken from a list.
func (x *Call) popped(e *entry, l *list, front bool) {
	key := []byte(e.name)
	x.did(EventList, popEvent(front), key)
	x.delIfEmpty(e, l.Len())
}

func llen(x *Call) {
	if l, e, ok := lookup[list](x, x.Args[1]); ok {
		if e == nil {
			x.int(0)
			return
		}
		x.int(l.Len())
	}
}

// at returns the place that an index means, which counts from the end if negative; -1: none.
func at(index int64, n int) int {
	if index < 0 {
		index += int64(n)
	}
	if index < 0 || index >= int64(n) {
		return -1
	}
	return int(index)
}

func lindex(x *Call) {
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.null()
		return
	}
	index, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	if i := at(index, l.Len()); i >= 0 {
		x.bulkString(l.At(i))
	} else {
		x.null()
	}
}

func linsert(x *Call) {
	after := is(x.Args[2], "AFTER")
	if !after && !is(x.Args[2], "BEFORE") {
		x.err(errSyntax)
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.int(0)
		return
	}
	pivot := string(x.Args[3])
	i := l.Index(func(v string) bool { return v == pivot })
	if i < 0 {
		x.int(-1)
		return
	}
	if after {
		i++
	}
	l.Insert(i, string(x.Args[4]))
	x.did(EventList, "linsert", x.Args[1])
	x.int(l.Len())
}

func lrange(x *Call) {
	first, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	last, ok := x.parseInt(x.Args[3])
	if !ok {
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.array(0)
		return
	}
	from, to := span(first, last, l.Len())
	x.array(to - from)
	for i := from; i < to; i++ {
		x.bulkString(l.At(i))
	}
}

func lrem(x *Call) {
	count, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.int(0)
		return
	}
	removed := removeFrom(l, string(x.Args[3]), count)
	if removed > 0 {
		x.did(EventList, "lrem", x.Args[1])
		x.delIfEmpty(e, l.Len())
	}
	x.int(removed)
}

// removeFrom removes the first count elements that are v, the last ones if it is negative, all if
// it is 0. The list is rotated once, what stays goes to its other end.
func removeFrom(l *list, v string, count int64) (removed int) {
	back := count < 0
	if back {
		count = -max(count, -math.MaxInt64) // the negative of the least would be itself
	}
	for range l.Len() {
		e := popOne(l, !back)
		if e == v && (count == 0 || int64(removed) < count) {
			removed++
		} else {
			pushOne(l, e, back)
		}
	}
	return removed
}

func lset(x *Call) {
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	if e == nil {
		x.err(errNoKey)
		return
	}
	index, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	i := at(index, l.Len())
	if i < 0 {
		x.err(errIndex)
		return
	}
	l.Set(i, string(x.Args[3]))
	x.did(EventList, "lset", x.Args[1])
	x.ok()
}

func ltrim(x *Call) {
	first, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	last, ok := x.parseInt(x.Args[3])
	if !ok {
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	x.ok()
	if e == nil {
		return
	}
	from, to := span(first, last, l.Len())
	for n := l.Len() - to; n > 0; n-- {
		l.PopBack()
	}
	for ; from > 0; from-- {
		l.PopFront()
	}
	x.did(EventList, "ltrim", x.Args[1])
	x.delIfEmpty(e, l.Len())
}

type lposOptions struct{ rank, count, most int64 }

func (x *Call) parseLpos() (o lposOptions, ok bool) {
	o = lposOptions{rank: 1, count: -1}
	for i := 3; i < len(x.Args); i += 2 {
		if i+1 == len(x.Args) {
			x.err(errSyntax)
			return o, false
		}
		a := x.Args[i]
		n, ok := resp.ParseInt(x.Args[i+1])
		switch {
		case is(a, "RANK") && !ok:
			x.err(errNotInt)
			return o, false
		case is(a, "RANK") && n == 0:
			x.err("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list")
			return o, false
		case is(a, "RANK"):
			if o.rank = n; n == math.MinInt64 { // its negative is itself, which is before the first
				o.rank = -1
			}
		case is(a, "COUNT") && (!ok || n < 0):
			x.err("ERR COUNT can't be negative")
			return o, false
		case is(a, "COUNT"):
			o.count = n
		case is(a, "MAXLEN") && (!ok || n < 0):
			x.err("ERR MAXLEN can't be negative")
			return o, false
		case is(a, "MAXLEN"):
			o.most = n
		default:
			x.err(errSyntax)
			return o, false
		}
	}
	return o, true
}

func lpos(x *Call) {
	o, ok := x.parseLpos()
	if !ok {
		return
	}
	l, e, ok := lookup[list](x, x.Args[1])
	if !ok {
		return
	}
	var found []int
	if e != nil {
		found = positions(l, string(x.Args[2]), o)
	}
	switch {
	case o.count >= 0:
		x.array(len(found))
		for _, i := range found {
			x.int(i)
		}
	case len(found) > 0:
		x.int(found[0])
	default:
		x.null()
	}
}

func positions(l *list, v string, o lposOptions) (found []int) {
	n, back := l.Len(), o.rank < 0
	skip := o.rank - 1
	if back {
		skip = -o.rank - 1
	}
	want := o.count
	if want < 0 {
		want = 1
	}
	for k := 0; k < n && (o.most == 0 || int64(k) < o.most); k++ {
		i := k
		if back {
			i = n - 1 - k
		}
		if l.At(i) != v {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if found = append(found, i); want > 0 && int64(len(found)) == want {
			break
		}
	}
	return found
}
