package store

import (
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A DB is a set of keys. It belongs to one goroutine: that of Loop, if there is one. Set the fields
// first; they may be nil.
type DB struct {
	// Loop runs the timers by which keys expire. Without one, nothing expires by itself: so it is
	// when the append-only file is read, which says what expired.
	Loop *loop.Loop

	// Log is called for each command that has changed something, in a form that changes the same
	// when it is run again, whenever that is. args are valid until it returns.
	Log func(args [][]byte)

	// Notify is called for each event whose class is in Events.
	Notify func(class Event, event, key string)
	Events Event

	// Now returns the wall clock in milliseconds since 1970. nil means the system's.
	Now func() int64

	keys     map[string]*entry
	list     entries
	expiring int
	now      int64 // the clock of the command that runs, 0 if it was not asked yet
	frozen   bool  // now stays as it is
	batch    int   // > 0: the commands of one transaction
	begun    bool  // its MULTI is in the log
	watched  map[string]map[*Watch]struct{}
	waiting  map[string][]*Wait
	ready    []string
	serving  bool
	stats    Stats
}

// Stats are counters of a DB.
type Stats struct {
	Keys, Expiring       int
	Expired              uint64
	Hits, Misses         uint64
	Changes              uint64
	LateMax, LateSum     time.Duration // how late keys went
	Blocked, WatchedKeys int
}

// Stats returns the counters as they are.
func (db *DB) Stats() Stats {
	s := db.stats
	s.Keys, s.Expiring, s.WatchedKeys = db.list.len(), db.expiring, len(db.watched)
	return s
}

// an entry is a key with its value: str if val is nil.
type entry struct {
	name string
	str  []byte
	val  any // *list, *hash, *set or *zset
	exp  *expiry
	pos  int // in DB.list
}

type expiry struct {
	due   int64 // milliseconds since 1970
	timer loop.Timer
}

type (
	hash = dict[string]
	set  = dict[struct{}]
)

func (e *entry) kind() string {
	switch e.val.(type) {
	case *list:
		return "list"
	case *hash:
		return "hash"
	case *set:
		return "set"
	case *zset:
		return "zset"
	}
	return "string"
}

// clock returns the time, which is the same throughout a command.
func (db *DB) clock() int64 {
	if db.now == 0 {
		if db.Now != nil {
			db.now = db.Now()
		} else {
			db.now = time.Now().UnixMilli()
		}
	}
	return db.now
}

// get returns the entry of a key, nil if there is none.
func (db *DB) get(key []byte) *entry {
	e := db.keys[string(key)]
	if e != nil && e.exp != nil && db.overdue(e) {
		db.expire(e)
		return nil
	}
	return e
}

// overdue reports whether the time of a key has come, though its timer has not fired: the loop is a
// bit late, or busy with the very batch that the timer is in.
func (db *DB) overdue(e *entry) bool {
	return db.Loop != nil && e.exp.due <= db.clock()
}

// put adds a new key, which must not be there.
func (db *DB) put(key []byte) *entry {
	if db.keys == nil {
		db.keys = make(map[string]*entry)
	}
	e := &entry{name: string(key)}
	db.keys[e.name] = e
	db.list.add(e)
	return e
}

// drop removes a key, without a word to anybody.
func (db *DB) drop(e *entry) {
	db.setDue(e, 0)
	delete(db.keys, e.name)
	db.list.remove(e)
}

// setDue sets when a key expires; 0 means never.
func (db *DB) setDue(e *entry, due int64) {
	switch {
	case due == 0 && e.exp == nil:
		return
	case due == 0:
		e.exp.timer.Stop()
		e.exp = nil
		db.expiring--
		return
	case e.exp == nil:
		e.exp = new(expiry)
		db.expiring++
	}
	e.exp.due = due
	db.arm(e)
}

// arm sets the timer of a key, on the wheel of the loop. The wheel is never early; it may be late
// by less than a millisecond, and by what keeps the loop busy.
func (db *DB) arm(e *entry) {
	if db.Loop == nil {
		return
	}
	in := until(e.exp.due)
	if e.exp.timer.Reset(in) {
		return
	}
	e.exp.timer = db.Loop.AfterFunc(in, func() { db.fire(e) })
}

func until(due int64) time.Duration {
	const most = 250 * 365 * 24 * time.Hour // what a Duration can hold; see fire
	now := time.Now()
	if due-now.UnixMilli() > most.Milliseconds() {
		return most
	}
	return time.UnixMilli(due).Sub(now)
}

// fire is called when the time of a key has come. Due times are wall clock time, which people may
// set back: then it has not come yet.
func (db *DB) fire(e *entry) {
	if !db.list.has(e) {
		return // flushed
	}
	late := -until(e.exp.due)
	if late < 0 {
		db.arm(e)
		return
	}
	db.stats.LateMax = max(db.stats.LateMax, late)
	db.stats.LateSum += late
	db.begin()
	db.expire(e)
}

// expire removes a key whose time has come.
func (db *DB) expire(e *entry) {
	db.drop(e)
	db.stats.Expired++
	if db.Log != nil { // a million keys may go in one second: what nobody reads is not made
		db.log([]byte("DEL"), []byte(e.name))
	}
	db.touch(e.name)
	db.notify(EventExpired, "expired", e.name)
}

// begin starts a command, or something else that needs the time.
func (db *DB) begin() {
	if !db.frozen {
		db.now = 0
	}
}

// log writes a command to the log. In a transaction, the first is preceded by MULTI.
func (db *DB) log(args ...[]byte) {
	if db.Log == nil {
		return
	}
	if db.batch > 1 && !db.begun {
		db.begun = true
		db.Log([][]byte{[]byte("MULTI")})
	}
	db.Log(args)
}

// Flush removes all keys, at once for everybody; their timers are stopped later.
func (db *DB) Flush() {
	for name := range db.watched {
		if db.keys[name] != nil {
			db.touch(name)
		}
	}
	db.stats.Changes += uint64(db.list.len())
	if db.Loop != nil && db.expiring > 0 {
		old := db.list
		db.Loop.AfterFunc(flushEvery, func() { db.forget(&old) })
	}
	db.keys, db.list, db.expiring = nil, entries{}, 0
}

const (
	flushEvery = time.Millisecond // and at most so many timers of keys that were flushed are
	flushBatch = 2000             // stopped: some 0.2 ms
)

// forget stops the timers of keys that are gone, a few at a time: those of a million keys would
// hold up the loop for a tenth of a second. What fires before that finds that its key is gone.
func (db *DB) forget(old *entries) {
	for range min(flushBatch, old.len()) {
		if e := old.pop(); e.exp != nil {
			e.exp.timer.Stop()
		}
	}
	if old.len() > 0 {
		db.Loop.AfterFunc(flushEvery, func() { db.forget(old) })
	}
}

// Arm sets the timers of keys that came without a Loop, when there is one. To be called on it.
func (db *DB) Arm() {
	for e := range db.list.all() {
		if e.exp != nil {
			db.arm(e)
		}
	}
}

// Move gives the keys for which to is not db itself to the DB that it returns. Neither may have a
// Loop.
func (db *DB) Move(to func(key string) *DB) {
	for _, e := range db.list.slice(0, db.list.len()) {
		other := to(e.name)
		if other == db {
			continue
		}
		moved := other.put([]byte(e.name))
		moved.str, moved.val = e.str, e.val
		if e.exp != nil {
			other.setDue(moved, e.exp.due)
		}
		db.drop(e)
	}
}
