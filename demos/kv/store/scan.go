package store

import (
	"bytes"
	"strconv"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// scanned returns what HSCAN, SSCAN and ZSCAN walk through, and how; false: they have been
// answered.
func scanned[T any](x *Call) (v *T, cursor uint64, o scanOptions, ok bool) {
	if cursor, ok = x.parseCursor(x.Args[2]); !ok {
		return nil, 0, o, false
	}
	v, e, ok := lookup[T](x, x.Args[1])
	if !ok {
		return nil, 0, o, false
	}
	if e == nil {
		x.replyScan(0, 0, nil)
		return nil, 0, o, false
	}
	o, ok = x.parseScan(x.Args[3:])
	return v, cursor, o, ok
}

// scanOptions are those of SCAN, HSCAN, SSCAN and ZSCAN.
type scanOptions struct {
	count   int
	pattern []byte
	kind    string
}

// parseCursor reads a cursor as C's strtoul does: -1 is the largest, and nothing is 0.
func (x *Call) parseCursor(b []byte) (cursor uint64, ok bool) {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) == 0 {
		return 0, true
	}
	digits := b
	if b[0] == '+' || b[0] == '-' {
		digits = b[1:]
	}
	cursor, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		x.err("ERR invalid cursor")
		return 0, false
	}
	if b[0] == '-' {
		cursor = -cursor
	}
	return cursor, true
}

func (x *Call) parseScan(args [][]byte) (o scanOptions, ok bool) {
	o.count = 10
	for i := 0; i < len(args); i += 2 {
		switch {
		case i+1 >= len(args):
			x.err(errSyntax)
			return o, false
		case is(args[i], "COUNT"):
			n, ok := x.parseInt(args[i+1])
			if !ok {
				return o, false
			}
			if n < 1 {
				x.err(errSyntax)
				return o, false
			}
			o.count = int(min(n, 1<<30))
		case is(args[i], "MATCH"):
			o.pattern = args[i+1]
		case is(args[i], "TYPE") && is(x.Args[0], "SCAN"):
			o.kind = lower(args[i+1])
		default:
			x.err(errSyntax)
			return o, false
		}
	}
	return o, true
}

func (o *scanOptions) matches(name string) bool {
	return o.pattern == nil || Match(o.pattern, []byte(name))
}

// replyScan answers a step of a walk: elems are its n elements.
func (x *Call) replyScan(next uint64, n int, elems []byte) {
	x.array(2)
	x.bulkString(strconv.FormatUint(next, 10))
	x.array(n)
	x.Out = append(x.Out, elems...)
}

func scan(x *Call) {
	cursor, ok := x.parseCursor(x.Args[1])
	if !ok {
		return
	}
	o, ok := x.parseScan(x.Args[2:])
	if !ok {
		return
	}
	from, to, next := window(cursor, o.count, x.DB.list.len())
	n := 0
	var elems []byte
	for _, e := range x.DB.list.slice(from, to) {
		if x.live(e) && (o.kind == "" || o.kind == e.kind()) && o.matches(e.name) {
			elems = resp.AppendBulk(elems, e.name)
			n++
		}
	}
	x.replyScan(next, n, elems)
}
