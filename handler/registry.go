package handler

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/loopwheel/loopwheel/loop"
)

// A Registry finds connections by a key: a device by its number, a user by the login. A key belongs
// to at most one connection, which may have several keys.
//
//	// On c's loop, after its login. Close its previous connection.
//	devices.Enter(id, c).Tell(func(old *loop.Conn) { old.CloseWithError(errElsewhere) })
//	...
//	// Anywhere. loop.ErrClosed: no connection has that id.
//	err := devices.Get(id).Tell(func(c *loop.Conn) { _ = c.Send(order) })
//
// The close of a replaced connection does not affect the one that has its key now.
type Registry[K comparable] struct {
	mu   sync.Mutex
	by   map[K]entered
	keys map[loop.Ref][]K // of each open connection that was entered at any time
}

// NewRegistry returns an empty Registry.
func NewRegistry[K comparable]() *Registry[K] {
	return &Registry[K]{by: make(map[K]entered), keys: make(map[loop.Ref][]K)}
}

// entered is the connection of a key.
type entered struct {
	ref loop.Ref
	at  int // in Registry.keys[ref]
}

// Enter gives key to c until c leaves or closes, and returns the connection that had it: the zero
// Ref if there was none, or if it was c. It must be called on c's loop, in Accept or later. It does
// nothing if c is closing, as no Tell would reach it.
func (r *Registry[K]) Enter(key K, c *loop.Conn) (before loop.Ref) {
	onLoop(c, "handler.Registry.Enter")
	state, ref := stateOf(c), c.Ref()
	if state.closed || in.IsClosing(c) {
		return before
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old, taken := r.by[key]
	switch {
	case taken && old.ref == ref:
		return before
	case taken:
		before = old.ref
		r.takeAway(old)
	}
	keys, known := r.keys[ref]
	if !known {
		state.atClose = append(state.atClose, func() { r.leaveAll(ref) })
	}
	r.by[key] = entered{ref, len(keys)}
	r.keys[ref] = append(keys, key)
	return before
}

// takeAway takes a key from its connection, whose last key moves to its place.
func (r *Registry[K]) takeAway(e entered) {
	keys := r.keys[e.ref]
	last := len(keys) - 1
	if e.at != last {
		keys[e.at] = keys[last]
		r.by[keys[last]] = e
	}
	r.keys[e.ref] = slices.Delete(keys, last, last+1) // it stays without keys, until leaveAll
}

// Leave takes key from c and reports whether c had it. It must be called on c's loop.
func (r *Registry[K]) Leave(key K, c *loop.Conn) bool {
	onLoop(c, "handler.Registry.Leave")
	ref := c.Ref()
	r.mu.Lock()
	defer r.mu.Unlock()
	e, taken := r.by[key]
	if !taken || e.ref != ref {
		return false
	}
	delete(r.by, key)
	r.takeAway(e)
	return true
}

// leaveAll takes all keys from a connection that has closed.
func (r *Registry[K]) leaveAll(ref loop.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range r.keys[ref] {
		delete(r.by, key)
	}
	delete(r.keys, ref)
}

// Get returns the connection that has key, or the zero Ref. Any goroutine may call it.
func (r *Registry[K]) Get(key K) loop.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[key].ref
}

// Len returns how many keys have a connection. Any goroutine may call it.
func (r *Registry[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.by)
}

// All yields a snapshot of the keys and their connections, in no order. Any goroutine may call it.
func (r *Registry[K]) All() iter.Seq2[K, loop.Ref] {
	return func(yield func(K, loop.Ref) bool) {
		r.mu.Lock()
		all := maps.Clone(r.by)
		r.mu.Unlock()
		for key, e := range all {
			if !yield(key, e.ref) {
				return
			}
		}
	}
}
