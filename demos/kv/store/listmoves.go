package store

import (
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "rpoplpush", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 2, Step: 1, run: func(x *Call) { x.lmove(x.Args[1], x.Args[2], false, true) }},
	{Name: "lmove", Arity: 5, Flags: Write | DenyOOM, First: 1, Last: 2, Step: 1, run: lmoveCommand},
	{Name: "blpop", Arity: -3, Flags: Write | Blocking, First: 1, Last: -2, Step: 1, run: func(x *Call) { bpop(x, true) }},
	{Name: "brpop", Arity: -3, Flags: Write | Blocking, First: 1, Last: -2, Step: 1, run: func(x *Call) { bpop(x, false) }},
	{Name: "brpoplpush", Arity: 4, Flags: Write | DenyOOM | Blocking, First: 1, Last: 2, Step: 1, run: brpoplpush},
	{Name: "blmove", Arity: 6, Flags: Write | DenyOOM | Blocking, First: 1, Last: 2, Step: 1, run: blmove},
	{Name: "lmpop", Arity: -4, Flags: Write, Keys: func(a [][]byte) [][]byte { return counted(a, 1) }, run: func(x *Call) { mpop(x, (*Call).parseLmpop) }},
	{Name: "blmpop", Arity: -5, Flags: Write | Blocking, Keys: func(a [][]byte) [][]byte { return counted(a, 2) }, run: func(x *Call) { bmpop(x, (*Call).parseLmpop) }},
})

// counted returns the keys of a command that says at args[i] how many follow.
func counted(args [][]byte, i int) [][]byte {
	if i >= len(args) {
		return nil
	}
	n, ok := resp.ParseInt(args[i])
	if !ok || n < 1 || n > int64(len(args)-i-1) {
		return nil
	}
	return args[i+1 : i+1+int(n)]
}

// lmove moves an element from one list to another, or to the other end of the same.
func (x *Call) lmove(from, to []byte, fromFront, toFront bool) {
	l, e, ok := lookup[list](x, from)
	if !ok {
		return
	}
	if e == nil {
		x.null()
		return
	}
	if _, _, ok := lookup[list](x, to); !ok {
		return
	}
	x.moveOne(e, l, to, fromFront, toFront)
}

func (x *Call) moveOne(e *entry, l *list, to []byte, fromFront, toFront bool) {
	v := popOne(l, fromFront)
	dst, f, _ := create[list](x, to)
	pushOne(dst, v, toFront)
	x.did(EventList, pushEvent(toFront), to)
	if f != e {
		x.DB.signal(f)
	}
	x.popped(e, l, fromFront)
	x.log([]byte("LMOVE"), []byte(e.name), to, side(fromFront), side(toFront))
	x.bulkString(v)
}

func side(front bool) []byte {
	if front {
		return []byte("LEFT")
	}
	return []byte("RIGHT")
}

// parseSide reads LEFT or RIGHT.
func (x *Call) parseSide(b []byte) (front, ok bool) {
	switch {
	case is(b, "LEFT"):
		return true, true
	case is(b, "RIGHT"):
		return false, true
	}
	x.err(errSyntax)
	return false, false
}

func lmoveCommand(x *Call) {
	from, ok := x.parseSide(x.Args[3])
	if !ok {
		return
	}
	if to, ok := x.parseSide(x.Args[4]); ok {
		x.lmove(x.Args[1], x.Args[2], from, to)
	}
}

func bpop(x *Call, front bool) {
	last := len(x.Args) - 1
	timeout, ok := x.parseTimeout(x.Args[last])
	if !ok {
		return
	}
	try := func(x *Call, key []byte) bool {
		l, e := held[list](x, key)
		if l == nil {
			return false
		}
		x.array(2)
		x.bulk(key)
		x.bulkString(popOne(l, front))
		x.popped(e, l, front)
		x.log([]byte(popEvent(front)), key)
		return true
	}
	x.tryKeys(x.Args[1:last], timeout, try)
}

// tryKeys runs try on the first key that has something, or waits.
func (x *Call) tryKeys(keys [][]byte, timeout time.Duration, try func(x *Call, key []byte) bool) {
	for _, key := range keys {
		if try(x, key) {
			return
		}
		if e := x.DB.get(key); e != nil {
			x.err(errWrongType)
			return
		}
	}
	x.wait(keys, timeout, try, (*Call).nullArray)
}

func brpoplpush(x *Call) { x.blmove(x.Args[3], false, true) }

func blmove(x *Call) {
	from, ok := x.parseSide(x.Args[3])
	if !ok {
		return
	}
	if to, ok := x.parseSide(x.Args[4]); ok {
		x.blmove(x.Args[5], from, to)
	}
}

func (x *Call) blmove(seconds []byte, fromFront, toFront bool) {
	timeout, ok := x.parseTimeout(seconds)
	if !ok {
		return
	}
	if _, e, ok := lookup[list](x, x.Args[1]); !ok {
		return
	} else if e != nil {
		x.lmove(x.Args[1], x.Args[2], fromFront, toFront)
		return
	}
	to := append([]byte(nil), x.Args[2]...)
	try := func(x *Call, key []byte) bool {
		if l, _ := held[list](x, key); l == nil {
			return false
		}
		x.lmove(key, to, fromFront, toFront)
		return true
	}
	x.wait(x.Args[1:2], timeout, try, (*Call).null)
}

// parseMpop reads the keys of LMPOP and ZMPOP, at args[i], the word behind them, which is one of
// two, and COUNT.
func (x *Call) parseMpop(i int, first, second string) (keys [][]byte, isFirst bool, count int, ok bool) {
	n, ok := resp.ParseInt(x.Args[i])
	if !ok || n < 1 {
		x.err("ERR numkeys should be greater than 0")
		return nil, false, 0, false
	}
	if n > int64(len(x.Args)-i-2) {
		x.err(errSyntax)
		return nil, false, 0, false
	}
	next := i + 1 + int(n)
	keys, isFirst = x.Args[i+1:next], is(x.Args[next], first)
	rest := x.Args[next+1:]
	if !isFirst && !is(x.Args[next], second) || len(rest) > 0 && (len(rest) == 1 || !is(rest[0], "COUNT")) {
		x.err(errSyntax)
		return nil, false, 0, false
	}
	if len(rest) == 0 {
		return keys, isFirst, 1, true
	}
	n, ok = resp.ParseInt(rest[1])
	switch {
	case !ok || n < 1:
		x.err("ERR count should be greater than 0")
	case len(rest) > 2:
		x.err(errSyntax)
	default:
		return keys, isFirst, int(min(n, 1<<31)), true
	}
	return nil, false, 0, false
}

func (x *Call) parseLmpop(i int) (keys [][]byte, try func(x *Call, key []byte) bool, ok bool) {
	keys, front, count, ok := x.parseMpop(i, "LEFT", "RIGHT")
	if !ok {
		return nil, nil, false
	}
	return keys, func(x *Call, key []byte) bool {
		l, e := held[list](x, key)
		if l == nil {
			return false
		}
		n := min(count, l.Len())
		x.array(2)
		x.bulk(key)
		x.popMany(e, l, n, front)
		x.log([]byte(popEvent(front)), key, num(int64(n)))
		return true
	}, true
}

// A parser reads the arguments of LMPOP or ZMPOP from the i-th on.
type parser func(x *Call, i int) (keys [][]byte, try func(x *Call, key []byte) bool, ok bool)

func mpop(x *Call, parse parser) {
	if keys, try, ok := parse(x, 1); ok {
		x.NoBlock = true
		x.tryKeys(keys, 0, try)
	}
}

func bmpop(x *Call, parse parser) {
	timeout, ok := x.parseTimeout(x.Args[1])
	if !ok {
		return
	}
	if keys, try, ok := parse(x, 2); ok {
		x.tryKeys(keys, timeout, try)
	}
}
