package store

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/loopwheel/loopwheel/codec/resp"
)

var _ = register([]Command{
	{Name: "del", Arity: -2, Flags: Write, First: 1, Last: -1, Step: 1, run: del},
	{Name: "unlink", Arity: -2, Flags: Write, First: 1, Last: -1, Step: 1, run: del},
	{Name: "exists", Arity: -2, First: 1, Last: -1, Step: 1, run: exists},
	{Name: "touch", Arity: -2, First: 1, Last: -1, Step: 1, run: exists},
	{Name: "type", Arity: 2, First: 1, Last: 1, Step: 1, run: typeCommand},
	{Name: "object", Arity: -2, First: 2, Last: 2, Step: 1, Check: checkObject, run: object},
	{Name: "memory", Arity: -2, First: 2, Last: 2, Step: 1, Check: checkMemory, run: memory},
	{Name: "rename", Arity: 3, Flags: Write, First: 1, Last: 2, Step: 1, run: rename},
	{Name: "renamenx", Arity: 3, Flags: Write, First: 1, Last: 2, Step: 1, run: rename},
	{Name: "copy", Arity: -3, Flags: Write | DenyOOM, First: 1, Last: 2, Step: 1, run: copyCommand},
	{Name: "keys", Arity: 2, run: keys},
	{Name: "dbsize", Arity: 1, run: func(x *Call) { x.int(x.DB.list.len()) }},
	{Name: "randomkey", Arity: 1, Flags: Random, run: randomkey},
	{Name: "flushall", Arity: -1, Flags: Write, run: flush},
	{Name: "flushdb", Arity: -1, Flags: Write, run: flush},
	{Name: "scan", Arity: -2, run: scan},
})

func del(x *Call) {
	n := 0
	for _, key := range x.Args[1:] {
		if e := x.DB.get(key); e != nil {
			x.DB.drop(e)
			x.did(EventGeneric, "del", key)
			n++
		}
	}
	x.int(n)
}

func exists(x *Call) {
	n := 0
	for _, key := range x.Args[1:] {
		if x.DB.get(key) != nil {
			n++
		}
	}
	x.int(n)
}

func typeCommand(x *Call) {
	kind := "none"
	if e := x.DB.get(x.Args[1]); e != nil {
		kind = e.kind()
	}
	x.Out = resp.AppendSimple(x.Out, kind)
}

func checkObject(args [][]byte) string {
	subs := []string{"encoding", "refcount", "idletime", "freq"}
	if len(args) == 3 && slices.Contains(subs, lower(args[1])) {
		return ""
	}
	return WrongSubcommand(args, subs...)
}

func checkMemory(args [][]byte) string {
	if len(args) >= 3 && is(args[1], "USAGE") {
		return ""
	}
	return WrongSubcommand(args, "usage")
}

// object answers with what this store has: one way to store each type.
func object(x *Call) {
	e, sub := x.DB.get(x.Args[2]), x.Args[1]
	switch {
	case e == nil:
		x.null()
	case is(sub, "REFCOUNT"):
		x.int(1)
	case is(sub, "IDLETIME"):
		x.int(0)
	case is(sub, "FREQ"):
		x.err("ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
			"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")
	default:
		x.bulkString(e.encoding())
	}
}

func (e *entry) encoding() string {
	switch e.val.(type) {
	case *list:
		return "quicklist"
	case *hash, *set:
		return "hashtable"
	case *zset:
		return "btree"
	}
	return "raw"
}

// memory estimates what a key takes.
func memory(x *Call) {
	if e := x.DB.get(x.Args[2]); e == nil {
		x.null()
	} else {
		x.int(e.size())
	}
}

// size estimates the bytes that a key takes: what is in it, and the structures around that.
func (e *entry) size() int {
	const perKey, perElement = 144, 72
	n := perKey + len(e.name) + cap(e.str)
	switch v := e.val.(type) {
	case *list:
		for i := range v.Len() {
			n += len(v.At(i)) + 24
		}
	case *hash:
		for f := range v.list.all() {
			n += len(f.key) + len(f.val) + perElement
		}
	case *set:
		for m := range v.list.all() {
			n += len(m.key) + perElement
		}
	case *zset:
		for m := range v.scores.list.all() {
			n += len(m.key) + 2*perElement
		}
	}
	return n
}

func rename(x *Call) {
	from, to := x.Args[1], x.Args[2]
	nx := len(x.Args[0]) == len("renamenx")
	e := x.DB.get(from)
	if e == nil {
		x.err(errNoKey)
		return
	}
	if string(from) == string(to) {
		if nx {
			x.int(0)
		} else {
			x.ok()
		}
		return
	}
	old := x.DB.get(to)
	if old != nil && nx {
		x.int(0)
		return
	}
	if old != nil {
		x.DB.drop(old)
	}
	x.move(e, to)
	x.did(EventGeneric, "rename_from", from)
	x.did(EventGeneric, "rename_to", to)
	if nx {
		x.int(1)
	} else {
		x.ok()
	}
}

// move gives the value of e, and when it expires, to a new key.
func (x *Call) move(e *entry, to []byte) {
	due := e.due()
	x.DB.drop(e)
	moved := x.DB.put(to)
	moved.str, moved.val = e.str, e.val
	x.DB.setDue(moved, due)
	x.DB.signal(moved)
}

func (e *entry) due() int64 {
	if e.exp == nil {
		return 0
	}
	return e.exp.due
}

func copyCommand(x *Call) {
	replace := false
	for i := 3; i < len(x.Args); i++ {
		switch a := x.Args[i]; {
		case is(a, "REPLACE"):
			replace = true
		case is(a, "DB") && i+1 < len(x.Args):
			i++
			if message := CheckDB(x.Args[i]); message != "" {
				x.err(message)
				return
			}
		default:
			x.err(errSyntax)
			return
		}
	}
	if string(x.Args[1]) == string(x.Args[2]) {
		x.err("ERR source and destination objects are the same")
		return
	}
	e, old := x.DB.get(x.Args[1]), x.DB.get(x.Args[2])
	if e == nil || old != nil && !replace {
		x.int(0)
		return
	}
	if old != nil {
		x.DB.drop(old)
	}
	c := x.DB.put(x.Args[2])
	c.str, c.val = append([]byte(nil), e.str...), copyOf(e.val)
	x.DB.setDue(c, e.due())
	x.DB.signal(c)
	x.did(EventGeneric, "copy_to", x.Args[2])
	x.int(1)
}

// CheckDB returns the error if an argument is not the number of a database, of which there is one.
func CheckDB(b []byte) string {
	n, ok := resp.ParseInt(b)
	switch {
	case !ok:
		return errNotInt
	case n < math.MinInt32 || n > math.MaxInt32:
		return errNotWithin32
	case n != 0:
		return "ERR DB index is out of range"
	}
	return ""
}

// copyOf copies the value of a key that is not a string.
func copyOf(val any) any {
	switch v := val.(type) {
	case *list:
		return v.clone()
	case *hash:
		c := v.clone()
		return &c
	case *set:
		c := v.clone()
		return &c
	case *zset:
		return v.clone()
	}
	return nil
}

func keys(x *Call) {
	at := len(x.Out)
	n := 0
	var found []byte
	for _, e := range x.DB.list.slice(0, x.DB.list.len()) {
		if x.live(e) && Match(x.Args[1], []byte(e.name)) {
			found = resp.AppendBulk(found, e.name)
			n++
		}
	}
	x.Out = append(resp.AppendArray(x.Out[:at], n), found...)
}

// live reports whether a key has not expired. If it has, it is removed.
func (x *Call) live(e *entry) bool {
	if e.exp != nil && x.DB.overdue(e) {
		x.DB.expire(e)
		return false
	}
	return true
}

func randomkey(x *Call) {
	for x.DB.list.len() > 0 {
		if e := *x.DB.list.at(rand.IntN(x.DB.list.len())); x.live(e) {
			x.bulkString(e.name)
			return
		}
	}
	x.null()
}

func flush(x *Call) {
	for _, a := range x.Args[1:] {
		if !is(a, "ASYNC") && !is(a, "SYNC") || len(x.Args) > 2 {
			x.err(errSyntax)
			return
		}
	}
	x.DB.Flush()
	x.changed = true
	x.ok()
}
