package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
)

// version is that of the redis-server whose replies these are.
const version = "7.0.15"

// commands is the table: commands about the connection, those that cross loops, those on one key.
var commands = map[string]*command{
	"ping":    {arity: -1, run: ping},
	"echo":    {arity: 2, run: ping},
	"hello":   {arity: -1, run: hello},
	"quit":    {arity: -1, run: func(s *session, _ [][]byte) error { return s.end([]byte(replyOK)) }},
	"select":  {arity: 2, run: selectDB},
	"command": {arity: -1, run: func(s *session, _ [][]byte) error { return s.reply([]byte("*0\r\n")) }},
	"info":    {arity: -1, run: info},

	"dbsize":   {arity: 1, run: dbsize},
	"flushall": {arity: -1, run: flushall},
	"scan":     {arity: -2, run: scan},
	"exists":   {arity: -2, run: counted(func(_ *shard, e *entry) bool { return e != nil })},
	"del":      {arity: -2, run: counted((*shard).remove)},
	"mget":     {arity: -2, run: mget},
	"mset":     {arity: -3, run: mset},

	"type":   {arity: 2, key: typeOf},
	"get":    {arity: 2, key: get},
	"set":    {arity: -3, key: set},
	"getex":  {arity: -2, key: getex},
	"getdel": {arity: 2, key: getdel},
	"strlen": {arity: 2, key: strlen},
	"append": {arity: 3, key: appendTo},
	"incr":   {arity: 2, key: add(1)},
	"decr":   {arity: 2, key: add(-1)},
	"incrby": {arity: 3, key: add(1)},
	"decrby": {arity: 3, key: add(-1)},

	"expire":     {arity: -3, key: ex.expire},
	"pexpire":    {arity: -3, key: px.expire},
	"expireat":   {arity: -3, key: exat.expire},
	"pexpireat":  {arity: -3, key: pxat.expire},
	"ttl":        {arity: 2, key: ex.ttl},
	"pttl":       {arity: 2, key: px.ttl},
	"expiretime": {arity: 2, key: exat.ttl},
	"persist":    {arity: 2, key: persist},
}

// lookup returns the command of a name in any case, or nil.
func lookup(name []byte) *command {
	var room [16]byte
	lower := append(room[:0], name...)
	for i, b := range lower {
		if b >= 'A' && b <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	return commands[string(lower)]
}

func ping(s *session, args [][]byte) error {
	switch len(args) {
	case 1:
		return s.reply([]byte("+PONG\r\n"))
	case 2:
		return s.reply(appendBulk(nil, args[1]))
	}
	return s.refuse(about("wrong number of arguments for", args[0]))
}

// hello tells what this is. Clients that would like to speak RESP3 get the error at which they go
// on with RESP2.
func hello(s *session, args [][]byte) error {
	if len(args) > 1 {
		switch version, isInt := parseInt(args[1]); {
		case !isInt:
			return s.refuse("ERR Protocol version is not an integer or out of range")
		case version != 2:
			return s.refuse("NOPROTO unsupported protocol version")
		case len(args) > 2:
			return s.refuse("ERR Syntax error in HELLO option '" + cString(args[2]) + "'")
		}
	}
	return s.reply(fmt.Appendf(nil, "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n%s\r\n$5\r\nproto\r\n:2\r\n"+
		"$2\r\nid\r\n:%d\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n", version, s.conn.ID()))
}

func selectDB(s *session, args [][]byte) error {
	switch n, isInt := parseInt(args[1]); {
	case !isInt:
		return s.refuse(errNotInt)
	case n < math.MinInt32 || n > math.MaxInt32:
		return s.refuse("ERR value is out of range, value must between -2147483648 and 2147483647")
	case n != 0:
		return s.refuse("ERR DB index is out of range")
	}
	return s.reply([]byte(replyOK))
}

// Commands on several keys, which may be on several loops. Each key changes as a whole, but MSET
// and DEL of several loops are no transaction: others may see some of the keys changed and some
// not.

// counted returns a command that replies for how many of its keys f is true.
func counted(f func(sh *shard, e *entry) bool) onSession {
	return func(s *session, args [][]byte) error {
		is := make([]byte, len(args)-1)
		return s.eachKey(args, 1,
			func(sh *shard, i int, kv [][]byte) {
				if f(sh, sh.find(kv[0])) {
					is[i] = 1
				}
			},
			func() []byte { return appendInt(nil, int64(bytes.Count(is, []byte{1}))) })
	}
}

func mget(s *session, args [][]byte) error {
	values := make([][]byte, len(args)-1) // as replies
	var size atomic.Int64                 // of all values: 2 bytes of a request can ask for 16 MiB
	return s.eachKey(args, 1,
		func(sh *shard, i int, kv [][]byte) {
			e := sh.find(kv[0])
			if e == nil || size.Add(int64(len(e.value))) <= maxReply {
				values[i] = get(sh, e, nil, nil)
			}
		},
		func() []byte {
			if size.Load() > maxReply {
				return appendError(nil, fmt.Sprintf("ERR the reply is longer than %d bytes", maxReply))
			}
			return append(appendHead(nil, '*', int64(len(values))), bytes.Join(values, nil)...)
		})
}

func mset(s *session, args [][]byte) error {
	if len(args)%2 == 0 {
		return s.refuse(about("wrong number of arguments for", args[0]))
	}
	return s.eachKey(args, 2,
		func(sh *shard, _ int, kv [][]byte) { sh.expireAt(sh.put(sh.find(kv[0]), kv[0], kv[1]), 0) },
		func() []byte { return []byte(replyOK) })
}

func typeOf(_ *shard, e *entry, _ [][]byte, out []byte) []byte {
	if e == nil {
		return append(out, "+none\r\n"...)
	}
	return append(out, "+string\r\n"...)
}

func strlen(_ *shard, e *entry, _ [][]byte, out []byte) []byte {
	if e == nil {
		return appendInt(out, 0)
	}
	return appendInt(out, int64(len(e.value)))
}

func get(_ *shard, e *entry, _ [][]byte, out []byte) []byte {
	if e == nil {
		return append(out, replyNull...)
	}
	return appendBulk(out, e.value)
}

func set(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	o, err := parseOptions(args, 3, e)
	if err != "" {
		return appendError(out, err)
	}
	write := !(o.nx && e != nil || o.xx && e == nil)
	switch {
	case o.get:
		out = get(sh, e, args, out)
	case write:
		out = append(out, replyOK...)
	default:
		out = append(out, replyNull...)
	}
	if write {
		e = sh.put(e, args[1], args[2])
		if !o.keepTTL {
			sh.expireAt(e, o.due)
		}
	}
	return out
}

func getex(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	o, err := parseOptions(args, 2, e)
	if err != "" {
		return appendError(out, err)
	}
	out = get(sh, e, args, out)
	if o.due != 0 || o.persist && e != nil {
		sh.expireAt(e, o.due)
	}
	return out
}

func getdel(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	out = get(sh, e, args, out)
	sh.remove(e)
	return out
}

func appendTo(sh *shard, e *entry, args [][]byte, out []byte) []byte {
	switch {
	case e == nil:
		e = sh.put(nil, args[1], args[2])
	case len(e.value)+len(args[2]) > maxValue:
		return appendError(out, "ERR string exceeds maximum allowed size (proto-max-bulk-len)")
	default:
		e.value = append(e.value, args[2]...)
	}
	return appendInt(out, int64(len(e.value)))
}

// add returns INCR, INCRBY and the like, which add the third argument, or 1, times sign. A key that
// there is not counts as 0.
func add(sign int64) onKey {
	return func(sh *shard, e *entry, args [][]byte, out []byte) []byte {
		by, n, isInt := int64(1), int64(0), true
		if len(args) > 2 {
			by, isInt = parseInt(args[2])
		}
		if isInt && sign < 0 && by == math.MinInt64 {
			return appendError(out, "ERR decrement would overflow")
		}
		by *= sign
		if isInt && e != nil {
			n, isInt = parseInt(e.value)
		}
		switch {
		case !isInt:
			return appendError(out, errNotInt)
		case by > 0 && n > math.MaxInt64-by, by < 0 && n < math.MinInt64-by:
			return appendError(out, "ERR increment or decrement would overflow")
		}
		var digits [20]byte
		sh.put(e, args[1], strconv.AppendInt(digits[:0], n+by, 10))
		return appendInt(out, n+by)
	}
}
