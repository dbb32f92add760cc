package store

import (
	"bytes"
	"math"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "get", Arity: 2, First: 1, Last: 1, Step: 1, run: get},
	{Name: "set", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setCommand},
	{Name: "setnx", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setnx},
	{Name: "setex", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setex},
	{Name: "psetex", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setex},
	{Name: "getset", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: getset},
	{Name: "getdel", Arity: 2, Flags: Write, First: 1, Last: 1, Step: 1, run: getdel},
	{Name: "getex", Arity: -2, Flags: Write, First: 1, Last: 1, Step: 1, run: getex},
	{Name: "mget", Arity: -2, First: 1, Last: -1, Step: 1, run: mget},
	{Name: "mset", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: -1, Step: 2, run: mset},
	{Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: -1, Step: 2, run: msetnx},
	{Name: "append", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: appendCommand},
	{Name: "strlen", Arity: 2, First: 1, Last: 1, Step: 1, run: strlen},
	{Name: "setrange", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setrange},
	{Name: "getrange", Arity: 4, First: 1, Last: 1, Step: 1, run: getrange},
	{Name: "substr", Arity: 4, First: 1, Last: 1, Step: 1, run: getrange},
	{Name: "incr", Arity: 2, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { incr(x, 1) }},
	{Name: "decr", Arity: 2, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: func(x *Call) { incr(x, -1) }},
	{Name: "incrby", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: incrby},
	{Name: "decrby", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: decrby},
	{Name: "incrbyfloat", Arity: 3, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: incrbyfloat},
	{Name: "setbit", Arity: 4, Flags: Write | DenyOOM, First: 1, Last: 1, Step: 1, run: setbit},
	{Name: "getbit", Arity: 3, First: 1, Last: 1, Step: 1, run: getbit},
	{Name: "lcs", Arity: -3, First: 1, Last: 2, Step: 1, run: lcs},
})

// str returns the string at a key, nil if there is none; ok is false if it is something else, which
// was answered.
func (x *Call) str(key []byte) (b []byte, e *entry, ok bool) {
	if e = x.DB.get(key); e == nil {
		x.DB.stats.Misses++
		return nil, nil, true
	}
	x.DB.stats.Hits++
	if e.val != nil {
		x.err(errWrongType)
		return nil, e, false
	}
	return e.str, e, true
}

func get(x *Call) {
	b, e, ok := x.str(x.Args[1])
	switch {
	case !ok:
	case e == nil:
		x.null()
	default:
		x.bulk(b)
	}
}

// store makes a copy of value the string at a key, whatever was there. It keeps the time when that
// expires.
func (x *Call) store(key []byte, e *entry, value []byte) *entry {
	if e == nil {
		e = x.DB.put(key)
		x.DB.notify(EventNew, "new", e.name)
	}
	e.val = nil
	if cap(e.str) >= len(value) && cap(e.str) <= 2*len(value)+32 {
		e.str = append(e.str[:0], value...)
	} else {
		e.str = append([]byte(nil), value...)
	}
	return e
}

// setOptions are those of SET and GETEX.
type setOptions struct {
	nx, xx, get, keep, persist bool
	unit, arg                  []byte // of the time, nil if none is given
	due                        int64  // what they say; 0: not given
	past                       bool   // due has passed
}

// parseSet parses options of SET, and those of GETEX, which has no flags. ok is false if an error
// was answered.
func (x *Call) parseSet(args [][]byte, getex bool) (o setOptions, ok bool) {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case !getex && is(a, "NX") && !o.xx:
			o.nx = true
		case !getex && is(a, "XX") && !o.nx:
			o.xx = true
		case !getex && is(a, "GET"):
			o.get = true
		case !getex && is(a, "KEEPTTL") && o.unit == nil:
			o.keep = true
		case getex && is(a, "PERSIST") && o.unit == nil:
			o.persist = true
		case isTime(a) && !o.keep && !o.persist && i+1 < len(args) && (o.unit == nil || bytes.EqualFold(a, o.unit)):
			i++
			o.unit, o.arg = a, args[i]
		default:
			x.err(errSyntax)
			return o, false
		}
	}
	return o, true
}

// parseTime sets due and past. It reports false if an error was answered.
func (o *setOptions) parseTime(x *Call) (ok bool) {
	if o.unit == nil {
		return true
	}
	o.due, ok = x.parseDue(o.unit, o.arg)
	o.past = ok && o.due <= x.DB.clock()
	return ok
}

func isTime(a []byte) bool { return is(a, "EX") || is(a, "PX") || is(a, "EXAT") || is(a, "PXAT") }

// parseDue returns when something expires that does so as unit (EX, PX, EXAT, PXAT) and arg say.
func (x *Call) parseDue(unit, arg []byte) (due int64, ok bool) {
	n, ok := x.parseInt(arg)
	if !ok {
		return 0, false
	}
	due, ok = x.due(n, is(unit, "EX") || is(unit, "EXAT"), is(unit, "EX") || is(unit, "PX"))
	if !ok || n <= 0 {
		x.invalidExpire()
		return 0, false
	}
	return due, true
}

func (x *Call) invalidExpire() {
	x.err("ERR invalid expire time in '" + lower(x.Args[0]) + "' command")
}

// due returns the time in milliseconds since 1970 that n means; false if that is too large.
func (x *Call) due(n int64, seconds, relative bool) (due int64, ok bool) {
	if seconds {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if relative {
		now := x.DB.clock()
		if n > math.MaxInt64-now {
			return 0, false
		}
		n += now
	}
	return n, true
}

func setCommand(x *Call) {
	key, value := x.Args[1], x.Args[2]
	var o setOptions
	if len(x.Args) > 3 {
		var ok bool
		if o, ok = x.parseSet(x.Args[3:], false); !ok || !o.parseTime(x) {
			return
		}
	}
	e := x.DB.get(key)
	if o.get {
		if e != nil && e.val != nil {
			x.err(errWrongType)
			return
		}
		x.replyOld(e)
	}
	if o.nx && e != nil || o.xx && e == nil {
		if !o.get {
			x.null()
		}
		return
	}
	x.set(key, e, value, o)
	if !o.get {
		x.ok()
	}
}

func (x *Call) replyOld(e *entry) {
	if e == nil {
		x.null()
	} else {
		x.bulk(e.str)
	}
}

// set is what all kinds of SET have in common.
func (x *Call) set(key []byte, e *entry, value []byte, o setOptions) {
	e = x.store(key, e, value)
	if !o.keep && (e.exp != nil || o.due != 0) {
		x.DB.setDue(e, o.due)
	}
	x.did(EventString, "set", key)
	if o.due == 0 {
		return
	}
	x.log([]byte("SET"), key, value, []byte("PXAT"), num(o.due))
	x.DB.notify(EventGeneric, "expire", e.name)
	if o.past && x.DB.Loop != nil {
		x.DB.expire(e)
	}
}

func num(n int64) []byte {
	var room [20]byte
	return appendInt(room[:0], n)
}

func setnx(x *Call) {
	if x.DB.get(x.Args[1]) != nil {
		x.int(0)
		return
	}
	x.set(x.Args[1], nil, x.Args[2], setOptions{})
	x.int(1)
}

func setex(x *Call) {
	unit := []byte("EX")
	if x.Args[0][0]|0x20 == 'p' {
		unit = []byte("PX")
	}
	due, ok := x.parseDue(unit, x.Args[2])
	if !ok {
		return
	}
	x.set(x.Args[1], x.DB.get(x.Args[1]), x.Args[3], setOptions{due: due})
	x.ok()
}

func getset(x *Call) {
	_, e, ok := x.str(x.Args[1])
	if !ok {
		return
	}
	x.replyOld(e)
	x.set(x.Args[1], e, x.Args[2], setOptions{})
}

func getdel(x *Call) {
	b, e, ok := x.str(x.Args[1])
	switch {
	case !ok:
	case e == nil:
		x.null()
	default:
		x.bulk(b)
		x.DB.drop(e)
		x.did(EventGeneric, "del", x.Args[1])
		x.log([]byte("DEL"), x.Args[1])
	}
}

func getex(x *Call) {
	o, ok := x.parseSet(x.Args[2:], true)
	if !ok {
		return
	}
	b, e, ok := x.str(x.Args[1])
	switch {
	case !ok:
		return
	case e == nil:
		x.null()
		return
	case !o.parseTime(x):
		return
	}
	x.bulk(b)
	switch {
	case o.past:
		x.DB.drop(e)
		x.did(EventGeneric, "del", x.Args[1])
		x.log([]byte("DEL"), x.Args[1])
	case o.due != 0:
		x.DB.setDue(e, o.due)
		x.did(EventGeneric, "expire", x.Args[1])
		x.log([]byte("PEXPIREAT"), x.Args[1], num(o.due))
	case o.persist && e.exp != nil:
		x.DB.setDue(e, 0)
		x.did(EventGeneric, "persist", x.Args[1])
		x.log([]byte("PERSIST"), x.Args[1])
	}
}

func mget(x *Call) {
	x.array(len(x.Args) - 1)
	for _, key := range x.Args[1:] {
		if e := x.DB.get(key); e == nil || e.val != nil {
			x.null()
		} else {
			x.bulk(e.str)
		}
	}
}

func mset(x *Call) {
	if len(x.Args)%2 == 0 {
		x.err(WrongArgs(string(x.Args[0])))
		return
	}
	x.msetAll()
	x.ok()
}

func (x *Call) msetAll() {
	for i := 1; i < len(x.Args); i += 2 {
		x.set(x.Args[i], x.DB.get(x.Args[i]), x.Args[i+1], setOptions{})
	}
}

func msetnx(x *Call) {
	if len(x.Args)%2 == 0 {
		x.err(WrongArgs(string(x.Args[0])))
		return
	}
	for i := 1; i < len(x.Args); i += 2 {
		if x.DB.get(x.Args[i]) != nil {
			x.int(0)
			return
		}
	}
	x.msetAll()
	x.int(1)
}

func appendCommand(x *Call) {
	b, e, ok := x.str(x.Args[1])
	if !ok || !x.checkLength(int64(len(b))+int64(len(x.Args[2]))) {
		return
	}
	if e == nil {
		e = x.store(x.Args[1], nil, nil)
	}
	e.str = append(e.str, x.Args[2]...)
	x.did(EventString, "append", x.Args[1])
	x.int(len(e.str))
}

func (x *Call) checkLength(n int64) bool {
	if n > resp.DefaultMaxBulk {
		x.err(errTooLong)
		return false
	}
	return true
}

func strlen(x *Call) {
	if b, _, ok := x.str(x.Args[1]); ok {
		x.int(len(b))
	}
}
