package store

import "strings"

var _ = register([]Command{
	{Name: "expire", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { expire(x, true, true) }},
	{Name: "pexpire", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { expire(x, false, true) }},
	{Name: "expireat", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { expire(x, true, false) }},
	{Name: "pexpireat", Arity: -3, Flags: Write, First: 1, Last: 1, Step: 1, run: func(x *Call) { expire(x, false, false) }},
	{Name: "ttl", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { ttl(x, true, true) }},
	{Name: "pttl", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { ttl(x, false, true) }},
	{Name: "expiretime", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { ttl(x, true, false) }},
	{Name: "pexpiretime", Arity: 2, First: 1, Last: 1, Step: 1, run: func(x *Call) { ttl(x, false, false) }},
	{Name: "persist", Arity: 2, Flags: Write, First: 1, Last: 1, Step: 1, run: persist},
})

type expireOptions struct{ nx, xx, gt, lt bool }

func (x *Call) parseExpire() (o expireOptions, ok bool) {
	for _, a := range x.Args[3:] {
		switch {
		case is(a, "NX"):
			o.nx = true
		case is(a, "XX"):
			o.xx = true
		case is(a, "GT"):
			o.gt = true
		case is(a, "LT"):
			o.lt = true
		default:
			x.err(strings.TrimRight("ERR Unsupported option "+upToZero(a), "\r\n"))
			return o, false
		}
	}
	if o.nx && (o.xx || o.gt || o.lt) {
		x.err("ERR NX and XX, GT or LT options at the same time are not compatible")
		return o, false
	}
	if o.gt && o.lt {
		x.err("ERR GT and LT options at the same time are not compatible")
		return o, false
	}
	return o, true
}

// allow reports whether the options let a key that expires at old, 0 for never, expire at due.
func (o expireOptions) allow(old, due int64) bool {
	switch {
	case o.nx && old != 0, o.xx && old == 0:
		return false
	case o.gt && (old == 0 || due <= old):
		return false
	case o.lt && old != 0 && due >= old:
		return false
	}
	return true
}

func expire(x *Call, seconds, relative bool) {
	o, ok := x.parseExpire()
	if !ok {
		return
	}
	n, ok := x.parseInt(x.Args[2])
	if !ok {
		return
	}
	due, ok := x.due(n, seconds, relative)
	if !ok {
		x.invalidExpire()
		return
	}
	e := x.DB.get(x.Args[1])
	if e == nil || !o.allow(e.due(), due) {
		x.int(0)
		return
	}
	x.int(1)
	if due <= x.DB.clock() && x.DB.Loop != nil {
		x.DB.drop(e)
		x.did(EventGeneric, "del", x.Args[1])
		x.log([]byte("DEL"), x.Args[1])
		return
	}
	if due <= 0 {
		due = 1
	}
	x.DB.setDue(e, due)
	x.did(EventGeneric, "expire", x.Args[1])
	x.log([]byte("PEXPIREAT"), x.Args[1], num(due))
}

func ttl(x *Call, seconds, relative bool) {
	e := x.DB.get(x.Args[1])
	switch {
	case e == nil:
		x.int(-2)
		return
	case e.exp == nil:
		x.int(-1)
		return
	}
	n := e.exp.due
	if relative {
		n = max(0, n-x.DB.clock())
	}
	if seconds {
		n = n/1000 + (n%1000+500)/1000
	}
	x.int64(n)
}

func persist(x *Call) {
	e := x.DB.get(x.Args[1])
	if e == nil || e.exp == nil {
		x.int(0)
		return
	}
	x.DB.setDue(e, 0)
	x.did(EventGeneric, "persist", x.Args[1])
	x.int(1)
}
