package timing

import "time"

// KeyedConfig holds the settings of a [Keyed]: those of a [SchedulerConfig], for entries in place
// of timers and the expire function in place of callbacks. The zero value is ready to use.
type KeyedConfig struct {
	Tick       time.Duration // for entries that live minutes a second is cheaper than a millisecond
	MaxPending int
	OnPanic    func(v any, stack []byte)
}

// Keyed is a timing wheel of keys, each with a value and a deadline, and of one function that gets
// what has expired: a cache with a time to live, sessions, calls that wait for their answers. Any
// goroutine may call its methods, the expire function included. Make one with [NewKeyed]: the
// methods of the zero Keyed panic. A program that owns a [Wheel] and wants no lock takes a
// [KeyedWheel]. The clock, the goroutine, and what becomes of one that is forgotten are those of a
// [Scheduler].
//
// Set, Move, Remove and Get take constant time. They do not allocate once the Keyed has grown to
// its largest size. An entry takes 32 bytes besides its key and value, and its place in a Go map of
// the keys. Keys are compared with ==, as there: a NaN can be set and expires, but is never found,
// and a key that cannot be compared panics.
type Keyed[K comparable, V any] struct {
	driver
	core[K, V]
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
	k := &Keyed[K, V]{}
	k.driver.init("NewKeyed", cfg, 1, k.runDue)
	k.core.init(k.driver.wheel, &k.mu, expire)
	return k
}

// Set gives a key a value, which expires d from now. If the key has one, both its value and its
// deadline are replaced. A d that is not positive has passed: the entry expires at once, but not
// before Set returns to a caller that is the expire function. The error is nil, ErrStopped, or a
// *LimitError if it would be one entry too many.
func (k *Keyed[K, V]) Set(key K, value V, d time.Duration) error {
	return k.setAfter(&k.driver, key, value, d)
}

// Update gives a key the value that f returns, in one step: f gets the key's value, and false if it
// has none. A new entry expires d from now, and one that there was keeps its deadline: so a cache
// fills in what is missing, and a counter counts within a window of time. Update returns the new
// value, and the error that Set would, with which f has not been called. f runs with the lock held:
// it must not call methods of k. If f panics, nothing has changed.
func (k *Keyed[K, V]) Update(key K, d time.Duration, f func(value V, ok bool) V) (value V, err error) {
	when := k.after(d)
	k.enter()
	defer k.mu.Unlock()
	if t := k.timer(key); t != (Timer{}) {
		e := &k.entries[t.index]
		e.Value = f(e.Value, true)
		return e.Value, nil
	}
	if err := k.admit(false); err != nil {
		return value, err
	}
	value = f(value, false)
	k.set(key, value, when)
	k.wakeBy(when)
	return value, nil
}

// Move has the entry of a key expire d from now, be that earlier or later than before, and reports
// true; false if there is none: there never was one, it has expired, or was removed.
func (k *Keyed[K, V]) Move(key K, d time.Duration) bool {
	return k.moveAfter(&k.driver, key, d) == nil
}

// When returns the deadline of a key's entry, and false if there is none.
func (k *Keyed[K, V]) When(key K) (when time.Time, ok bool) {
	k.enter()
	defer k.mu.Unlock()
	return k.when(k.timer(key))
}

// Stop ends the Keyed and returns its entries in the order of their deadlines. expire is not called
// any more; Stop does not wait for a call that is running, so expire may call it. Set then returns
// ErrStopped, and the other methods find nothing. To stop again does nothing and returns nil.
func (k *Keyed[K, V]) Stop() []Entry[K, V] {
	k.enter()
	defer k.mu.Unlock()
	if !k.stop() {
		return nil
	}
	return k.takeAll()
}

// runDue gives expire a batch of what is due, and reports whether there may be more: at least the
// batch, which must be forgotten.
func (k *Keyed[K, V]) runDue() (more bool) {
	k.mu.Mutex.Lock()
	k.endBatch()
	if !k.stopped {
		more = k.takeDue(k.now()) || len(k.batch) > 0
	}
	batch := k.batch
	k.mu.Unlock()
	if len(batch) > 0 {
		k.call(func() { k.expire(batch) })
	}
	return more
}
