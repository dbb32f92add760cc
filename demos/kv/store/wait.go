package store

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/loop"
)

// A Wait is a command that waits for a key: BLPOP and the like.
type Wait struct {
	Keys    [][]byte      // copies
	Timeout time.Duration // 0: none

	// try runs the command on a key that has something now. It reports false if it still has to
	// wait.
	try func(x *Call, key []byte) bool

	version resp.Version
	timer   loop.Timer
	answer  func(reply []byte)
}

// wait makes the command wait, unless it must not: none answers then that there is nothing.
func (x *Call) wait(keys [][]byte, timeout time.Duration, try func(x *Call, key []byte) bool, none func(x *Call)) {
	if x.NoBlock {
		none(x)
		return
	}
	w := &Wait{Timeout: timeout, try: try, version: x.V}
	for _, key := range keys {
		w.Keys = append(w.Keys, slices.Clone(key))
	}
	x.Block = w
	x.logged = true
}

// Wait has a command wait. answer is called once, on the DB's goroutine, with the reply, which is
// valid until it returns; unless Cancel is called before.
func (db *DB) Wait(w *Wait, answer func(reply []byte)) {
	w.answer = answer
	if db.waiting == nil {
		db.waiting = make(map[string][]*Wait)
	}
	for _, key := range w.Keys {
		if !slices.Contains(db.waiting[string(key)], w) {
			db.waiting[string(key)] = append(db.waiting[string(key)], w)
		}
	}
	db.stats.Blocked++
	if w.Timeout > 0 {
		w.timer = db.Loop.AfterFunc(w.Timeout, func() { db.Expire(w) })
	}
}

// Expire answers w as if its time were over: with a null array, whatever it waits for.
func (db *DB) Expire(w *Wait) {
	if w.answer == nil {
		return
	}
	x := &Call{DB: db, V: w.version}
	x.nullArray()
	answer := w.answer
	db.Cancel(w)
	answer(x.Out)
}

// Cancel ends w without an answer. It reports false if it has been answered.
func (db *DB) Cancel(w *Wait) bool {
	if w.answer == nil {
		return false
	}
	w.answer = nil
	w.timer.Stop()
	db.stats.Blocked--
	for _, key := range w.Keys {
		name := string(key)
		if rest := slices.DeleteFunc(db.waiting[name], func(o *Wait) bool { return o == w }); len(rest) > 0 {
			db.waiting[name] = rest
		} else {
			delete(db.waiting, name)
		}
	}
	return true
}

// signal says that there is something at a key that others may wait for.
func (db *DB) signal(e *entry) {
	if len(db.waiting) > 0 && db.waiting[e.name] != nil && !slices.Contains(db.ready, e.name) {
		db.ready = append(db.ready, e.name)
	}
}

// serve lets those who wait have what has come, in the order in which they came.
func (db *DB) serve() {
	if db.serving {
		return
	}
	db.serving = true
	defer func() { db.serving = false }()
	for len(db.ready) > 0 {
		name := db.ready[0]
		db.ready = db.ready[1:]
		for _, w := range slices.Clone(db.waiting[name]) {
			if db.keys[name] == nil {
				break
			}
			db.serveOne(w, name)
		}
	}
	db.ready = nil
}

func (db *DB) serveOne(w *Wait, name string) {
	if w.answer == nil {
		return
	}
	db.begin()
	x := &Call{DB: db, V: w.version, NoBlock: true}
	if !w.try(x, []byte(name)) {
		return
	}
	answer := w.answer
	db.Cancel(w)
	answer(x.Out)
}

// parseTimeout reads seconds, which may have decimals; false: an error was answered. What a
// Duration cannot hold is 0, for ever.
func (x *Call) parseTimeout(b []byte) (time.Duration, bool) {
	f, ok := parseBig(b)
	if !ok {
		x.err("ERR timeout is not a float or out of range")
		return 0, false
	}
	ms, rounded := new(big.Float).Mul(f, big.NewFloat(1000)).Int64()
	switch {
	case ms < 0:
		x.err("ERR timeout is negative")
		return 0, false
	case ms == math.MaxInt64:
		x.err("ERR timeout is out of range")
		return 0, false
	case ms > math.MaxInt64/1_000_000:
		return 0, true
	case rounded == big.Below:
		ms++
	}
	return time.Duration(ms) * time.Millisecond, true
}
