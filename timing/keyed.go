package timing

import (
	"time"
)

// KeyedConfig holds the settings of a [Keyed]. The zero value is ready to use. Negative settings
// are a programmer's error: NewKeyed panics.
type KeyedConfig struct {
	// Tick is the resolution, as in [Config]. 0 means time.Millisecond. For entries that live
	// minutes a tick of a second is cheaper, and they live up to a second longer.
	Tick time.Duration

	// MaxPending bounds the entries. 0 means DefaultMaxPending.
	MaxPending int

	// OnPanic is told what the expire function panicked with, and the stack, on its goroutine. nil
	// means that both are printed with the standard log package.
	OnPanic func(v any, stack []byte)
}

// Keyed is a timing wheel of keys, each with a value and a deadline, and of one function that gets
// what has expired: a cache with a time to live, sessions, calls that wait for their answers. Any
// goroutine may call its methods, the expire function included. Make one with [NewKeyed]: the methods
// of the zero Keyed panic. Who owns a [Wheel] and wants no lock takes a [KeyedWheel].
//
// Set, Move, Remove and Get take constant time. They do not allocate once the Keyed has grown to
// its largest size, and an entry takes some 36 bytes besides its key and value. Keys are compared
// with ==; one that is not equal to itself, a NaN, can be set and expires, but is never found. A key
// of an interface type whose value cannot be compared, a slice say, panics, as in a map.
//
// As a [Scheduler], a Keyed measures with the monotonic clock, has a goroutine only while something
// is due, and one that is forgotten with nothing in it is simply collected, at the latest when the
// deadline of its last entry has passed.
type Keyed[K comparable, V any] struct {
	driver
	core   keyedCore[K, V]
	max    int
	expire func(expired []Entry[K, V])
}

// NewKeyed returns an empty Keyed. It panics if the config makes no sense.
//
// expire gets what has expired, in the order of the deadlines, up to 256 entries at a time: neither
// early, nor late by more than a tick and what calls before it take. The entries have been removed,
// so their keys may be set again. The slice is only valid until expire returns. Calls run one at a
// time, on a goroutine of the Keyed, without a lock. A panic is recovered and reported to OnPanic,
// and the rest of that batch is not offered again: who calls functions of others there recovers for
// each. expire may be nil: then entries just go.
func NewKeyed[K comparable, V any](cfg KeyedConfig, expire func(expired []Entry[K, V])) *Keyed[K, V] {
	if cfg.MaxPending < 0 {
		panic("timing: NewKeyed with a negative MaxPending")
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = DefaultMaxPending
	}
	k := &Keyed[K, V]{max: cfg.MaxPending, expire: expire}
	k.init(cfg.Tick, cfg.OnPanic, k.runDue)
	k.core.init(k.wheel)
	return k
}

// Set gives a key a value, which expires d from now. If the key has one, both its value and its
// deadline are replaced. A d that is not positive has passed: the entry expires at once, but not
// before Set returns to a caller that is the expire function. The error is nil, ErrStopped, or a
// *LimitError if it would be one entry too many.
func (k *Keyed[K, V]) Set(key K, value V, d time.Duration) error {
	hash, when := k.core.hash(key), k.after(d) // not under the lock, as it takes so long
	k.lock()
	err := k.set(hash, key, value, when)
	k.mu.Unlock()
	return err
}

func (k *Keyed[K, V]) set(hash uint32, key K, value V, when time.Duration) error {
	if k.stopped {
		return ErrStopped
	}
	if !k.core.set(hash, key, value, when, k.max) {
		return &LimitError{Max: k.max}
	}
	k.wakeBy(when)
	return nil
}

// Move has the entry of a key expire d from now, be that earlier or later than before, and reports
// true; false if there is none: there never was one, it has expired, or was removed.
func (k *Keyed[K, V]) Move(key K, d time.Duration) bool {
	hash, when := k.core.hash(key), k.after(d)
	k.lock()
	ok := k.core.move(hash, key, when)
	if ok {
		k.wakeBy(when)
	}
	k.mu.Unlock()
	return ok
}

// Remove takes out the entry of a key and returns its value. True means that expire will not get
// it; false that there is none: there never was one, it has expired, or was removed.
func (k *Keyed[K, V]) Remove(key K) (value V, ok bool) {
	hash := k.core.hash(key)
	k.lock()
	value, ok = k.core.remove(hash, key)
	k.mu.Unlock()
	return value, ok
}

// Get returns the value of a key. It does not move its deadline. An entry whose time has come is found
// until expire gets it.
func (k *Keyed[K, V]) Get(key K) (value V, ok bool) {
	hash := k.core.hash(key)
	k.lock()
	value, ok = k.core.get(hash, key)
	k.mu.Unlock()
	return value, ok
}

// Len returns the number of entries.
func (k *Keyed[K, V]) Len() int {
	k.core.mustBeMade()
	k.lock()
	defer k.mu.Unlock()
	return k.wheel.Len()
}

// Drain takes out all entries, at one moment, and then calls f with each, in the order of their
// deadlines, on the caller's goroutine. f may be nil, and may set entries, which stay. It returns
// how many there were.
func (k *Keyed[K, V]) Drain(f func(key K, value V)) int {
	k.core.mustBeMade()
	k.lock()
	all := k.core.takeAll()
	k.mu.Unlock()
	if f != nil {
		for _, e := range all {
			f(e.Key, e.Value)
		}
	}
	return len(all)
}

// Stop ends the Keyed and returns its entries in the order of their deadlines. expire is not called
// any more; Stop does not wait for a call that is running, so expire may call it. Set then returns
// ErrStopped, and the other methods find nothing. To stop again does nothing and returns nil.
func (k *Keyed[K, V]) Stop() []Entry[K, V] {
	k.core.mustBeMade()
	k.lock()
	defer k.mu.Unlock()
	k.disarm()
	return k.core.takeAll()
}

// runDue gives expire a batch of what is due, and reports whether there may be more.
func (k *Keyed[K, V]) runDue() bool {
	batch, more := k.takeDue()
	if len(batch) > 0 && k.expire != nil {
		k.call(func() { k.expire(batch) })
	}
	return more
}

func (k *Keyed[K, V]) takeDue() (batch []Entry[K, V], more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.core.endBatch()
	if k.stopped {
		return nil, false
	}
	batch, more = k.core.takeDue(k.now())
	return batch, more || len(batch) > 0 // the batch must be forgotten
}
