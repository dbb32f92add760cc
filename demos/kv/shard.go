package main

import (
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// shards has a shard for each loop. Only that loop can get it: there is no lock, and no way to read
// the keys of another loop but to run something there.
var shards = loop.NewLocal(newShard)

func shardOf(l *loop.Loop) *shard { return *shards.Get(l) }

// A shard is the keys of one loop.
type shard struct {
	loop     *loop.Loop
	keys     map[string]*entry
	list     []*entry // the same, in an order for scan
	expiring int      // how many will expire
	expired  int      // how many have
	scratch  []byte
}

// An entry is a key and its value.
type entry struct {
	key   string
	value []byte
	due   int64      // in Unix milliseconds, the last one in which it is there; 0 means never
	timer loop.Timer // for that, in the wheel of the loop
	place int        // in shard.list
}

func newShard(l *loop.Loop) *shard {
	return &shard{loop: l, keys: make(map[string]*entry)}
}

// run runs a command on a key of this shard. The reply is valid until the next call.
func (sh *shard) run(f onKey, args [][]byte) (reply []byte) {
	reply = f(sh, sh.find(args[1]), args, sh.scratch[:0])
	if sh.scratch = reply; cap(reply) > 256<<10 {
		sh.scratch = nil // a large value does not keep its memory
	}
	return reply
}

func now() int64 { return time.Now().UnixMilli() }

// find returns the entry of a key, or nil. A key whose time has come is gone for every command,
// also in the millisecond before the wheel removes it, and while a busy loop has no time for the
// wheel.
func (sh *shard) find(key []byte) *entry {
	e := sh.keys[string(key)]
	if e != nil && e.overdue() {
		sh.expired++
		sh.remove(e)
		return nil
	}
	return e
}

func (e *entry) overdue() bool { return e.due != 0 && now() > e.due }

// put returns the entry of a key, which is e if that is not nil, with a copy of value. When it
// expires stays the same.
func (sh *shard) put(e *entry, key, value []byte) *entry {
	if e == nil {
		e = &entry{key: string(key), place: len(sh.list)}
		sh.keys[e.key] = e
		sh.list = append(sh.list, e)
	}
	if cap(e.value) > 2*len(value)+32 {
		e.value = nil
	}
	e.value = append(e.value[:0], value...)
	return e
}

// remove removes an entry, and its deadline. The last one of the list takes its place. It reports
// false if e is nil.
func (sh *shard) remove(e *entry) bool {
	if e == nil {
		return false
	}
	sh.expireAt(e, 0)
	delete(sh.keys, e.key)
	last := len(sh.list) - 1
	moved := sh.list[last]
	sh.list[e.place], moved.place = moved, e.place
	sh.list[last] = nil
	sh.list = sh.list[:last]
	return true
}

// expireAt changes when an entry expires; 0 means never. A time that has come removes it.
func (sh *shard) expireAt(e *entry, due int64) {
	switch {
	case due == 0 && e.due == 0:
	case due == 0:
		e.due = 0
		e.timer.Stop()
		sh.expiring--
	case due <= now():
		sh.remove(e)
	default:
		if e.due == 0 {
			sh.expiring++
		}
		e.due = due
		sh.arm(e)
	}
}

// arm sets the timer of an entry to the first millisecond in which it is overdue.
func (sh *shard) arm(e *entry) {
	d := time.Until(time.UnixMilli(e.due).Add(time.Millisecond))
	if !e.timer.Reset(d) {
		e.timer = sh.loop.AfterFunc(d, func() { sh.expire(e) })
	}
}

// expire removes an entry whose timer has fired. The wheel counts time that passes; deadlines are of
// the wall clock. If somebody has set that back, the time has not come yet.
func (sh *shard) expire(e *entry) {
	if e.overdue() {
		sh.expired++
		sh.remove(e)
	} else {
		sh.arm(e)
	}
}

// flush removes all keys.
func (sh *shard) flush() {
	for _, e := range sh.list {
		e.timer.Stop()
	}
	sh.keys, sh.list, sh.expiring = make(map[string]*entry), nil, 0
}
