package main

import (
	"math"
	"slices"
	"strings"
)

// A unit is how a command or an option says when a key expires.
type unit struct {
	millis  int64 // that one of it has
	fromNow bool  // and not from 1970
}

// The units of the options, and of the commands that are like them.
var (
	ex, px, exat, pxat = unit{1000, true}, unit{1, true}, unit{1000, false}, unit{1, false}
	units              = map[string]*unit{"EX": &ex, "PX": &px, "EXAT": &exat, "PXAT": &pxat}
)

// due returns the Unix milliseconds that n means, or false if they do not fit into 64 bits.
func (u unit) due(n int64) (due int64, ok bool) {
	if n > math.MaxInt64/u.millis || n < math.MinInt64/u.millis {
		return 0, false
	}
	due = n * u.millis
	if !u.fromNow {
		return due, true
	}
	from := now()
	return due + from, due <= math.MaxInt64-from
}

// options are those of SET and GETEX.
type options struct {
	nx, xx, get, keepTTL, persist bool
	due                           int64 // 0 if they do not say it
}

// parseOptions parses the options of SET, args[3:], or of GETEX, args[2:]. e is what the key has.
func parseOptions(args [][]byte, from int, e *entry) (o options, err string) {
	var in *unit
	var time []byte
	getex := from == 2
	for i := from; i < len(args); i++ {
		switch a := args[i]; {
		case !getex && is(a, "NX") && !o.xx:
			o.nx = true
		case !getex && is(a, "XX") && !o.nx:
			o.xx = true
		case !getex && is(a, "GET"):
			o.get = true
		case !getex && is(a, "KEEPTTL") && in == nil:
			o.keepTTL = true
		case getex && is(a, "PERSIST") && in == nil:
			o.persist = true
		default:
			u := units[strings.ToUpper(cString(a))]
			if u == nil || o.keepTTL || o.persist || in != nil && in != u || i+1 == len(args) {
				return o, errSyntax
			}
			i++
			in, time = u, args[i]
		}
	}
	if in == nil || getex && e == nil { // no time is wrong for a key that there is not
		return o, ""
	}
	n, isInt := parseInt(time)
	due, fits := in.due(n)
	switch o.due = due; {
	case !isInt:
		return o, errNotInt
	case n <= 0 || !fits:
		return o, about("invalid expire time in", args[0])
	}
	return o, ""
}

// expire is EXPIRE and the like. NX, XX, GT and LT are conditions on the time that the key has.
func (u unit) expire(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	has := func(word string) bool {
		return slices.ContainsFunc(args[3:], func(a []byte) bool { return is(a, word) })
	}
	nx, xx, gt, lt := has("NX"), has("XX"), has("GT"), has("LT")
	for _, a := range args[3:] {
		if !is(a, "NX") && !is(a, "XX") && !is(a, "GT") && !is(a, "LT") {
			return appendError(out, "ERR Unsupported option "+strings.TrimRight(cString(a), "\r\n"))
		}
	}
	n, isInt := parseInt(args[2])
	due, fits := u.due(n)
	switch {
	case nx && (xx || gt || lt):
		return appendError(out, "ERR NX and XX, GT or LT options at the same time are not compatible")
	case gt && lt:
		return appendError(out, "ERR GT and LT options at the same time are not compatible")
	case !isInt:
		return appendError(out, errNotInt)
	case !fits:
		return appendError(out, about("invalid expire time in", args[0]))
	case e == nil, nx && e.due != 0, xx && e.due == 0,
		gt && (e.due == 0 || due <= e.due), lt && e.due != 0 && due >= e.due:
		return appendInt(out, 0)
	}
	sh.expireAt(e, max(due, 1)) // 0 would be never
	return appendInt(out, 1)
}

// ttl is TTL and the like. Seconds are rounded to the nearest.
func (u unit) ttl(_ *shard, e *entry, args [][]byte, out []byte) []byte {
	switch {
	case e == nil:
		return appendInt(out, -2)
	case e.due == 0:
		return appendInt(out, -1)
	}
	n := e.due
	if u.fromNow {
		n = max(0, n-now())
	}
	return appendInt(out, n/u.millis+(n%u.millis+u.millis/2)/u.millis)
}

func persist(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	if e == nil || e.due == 0 {
		return appendInt(out, 0)
	}
	sh.expireAt(e, 0)
	return appendInt(out, 1)
}
