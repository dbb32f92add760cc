package handler

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/loopwheel/loopwheel/loop"
)

// A Registry finds connections by a key: a device by its number, a user by the login. A key belongs
// to one connection at most, which may have several. The zero Registry is empty and ready to use;
// it must not be copied.
//
//	// On c's loop, when it has said who it is. Its connection of before goes.
//	_ = devices.Enter(id, c).Tell(func(old *loop.Conn) { old.CloseWithError(errElsewhere) })
//	...
//	// Anywhere. loop.ErrClosed: nobody has that id.
//	err := devices.Get(id).Tell(func(c *loop.Conn) { _ = c.Send(order) })
//
// A connection that was replaced and closes takes nothing away from the one that has its key now.
type Registry[K comparable] struct {
	mu   sync.Mutex
	by   map[K]loop.Ref
	keys map[loop.Ref][]K // entered, and not left; somebody else may have them now
}

// Enter gives key to c until it leaves or has closed, and returns the connection that had it: the
// zero Ref if there was none, or if it was c. It must be called on c's loop; Accept may call it,
// too. Nothing happens if c has closed already.
func (r *Registry[K]) Enter(key K, c *loop.Conn) (before loop.Ref) {
	state, ref := stateOf(c), c.Ref()
	if state.closed {
		return before
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by, r.keys = make(map[K]loop.Ref), make(map[loop.Ref][]K)
	}
	had, known := r.keys[ref]
	if !known {
		state.atClose = append(state.atClose, func() { r.leaveAll(ref) })
	}
	if !slices.Contains(had, key) {
		r.keys[ref] = append(had, key)
	}
	if before = r.by[key]; before == ref {
		before = loop.Ref{}
	}
	r.by[key] = ref
	return before
}

// Leave takes key away from c and reports whether c had it. It must be called on c's loop.
func (r *Registry[K]) Leave(key K, c *loop.Conn) bool {
	ref := c.Ref()
	r.mu.Lock()
	defer r.mu.Unlock()
	if had, known := r.keys[ref]; known { // and stays so without keys, as leaveAll will be called
		r.keys[ref] = slices.DeleteFunc(had, func(k K) bool { return k == key })
	}
	had := r.by[key] == ref
	if had {
		delete(r.by, key)
	}
	return had
}

// leaveAll is what happens when a connection has closed. Others may have its keys now.
func (r *Registry[K]) leaveAll(ref loop.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range r.keys[ref] {
		if r.by[key] == ref {
			delete(r.by, key)
		}
	}
	delete(r.keys, ref)
}

// Get returns the connection that has key, or the zero Ref. Any goroutine may call it.
func (r *Registry[K]) Get(key K) loop.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[key]
}

// Len returns how many keys have a connection. Any goroutine may call it.
func (r *Registry[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.by)
}

// All yields the keys and their connections in no order, from a copy. Any goroutine may call it.
func (r *Registry[K]) All() iter.Seq2[K, loop.Ref] {
	return func(yield func(K, loop.Ref) bool) {
		r.mu.Lock()
		all := maps.Clone(r.by)
		r.mu.Unlock()
		maps.All(all)(yield)
	}
}
