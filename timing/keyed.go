package timing

import (
	"context"
	"iter"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Entry is a struct of a Key and its Value in a [Keyed].
type Entry[K comparable, V any] = wheel.Entry[K, V]

// KeyedConfig holds the settings of a [Keyed], which mean the same as those of a [SchedulerConfig].
type KeyedConfig struct {
	Tick       time.Duration // for entries that live for minutes a second is cheaper than a millisecond
	MaxPending int
	OnPanic    func(v any, stack []byte)
}

// Keyed is a timing wheel of keys, each with a value and a deadline: a cache with a time to live,
// sessions, calls that wait for answers. A function gets the expired entries. A key of a
// [Scheduler] is one whose value is a callback; Set, Move, Remove, Drain, Stop, Shutdown and Stats
// mean the same in both. Any goroutine may call its methods, and so may the expire function. Make
// one with [NewKeyed]: the methods of the zero Keyed panic. Delays and goroutines are those of a
// [Scheduler].
//
// Set, Move, Remove and Get take constant time, and do not allocate once the Keyed has grown. After
// thousands of entries it releases their memory when the last one goes. An entry takes 32 bytes
// besides its key and value, and its place in a Go map. Keys are compared with ==: a NaN can be set
// and expires, but is never found, and a key that cannot be compared panics.
type Keyed[K comparable, V any] struct {
	k *wheel.Keyed[K, V]
	s Scheduler // drives it, with one worker
}

// NewKeyed returns an empty Keyed. It panics if the config is invalid.
//
// expire gets the expired entries, in the order of their deadlines, and within a tick in the order
// in which they were set (those that Move has put off, in no order), up to 256 at a time: never
// early, and late by at most a tick and the duration of earlier calls. The entries have been
// removed, so their keys may be set again. The slice is only valid until expire returns. Calls run
// one at a time, on a goroutine of the Keyed, without a lock. A panic is reported to OnPanic, and
// entries of that batch that expire had not handled are lost. If expire is nil, entries just
// disappear.
func NewKeyed[K comparable, V any](cfg KeyedConfig, expire func(expired []Entry[K, V])) *Keyed[K, V] {
	k := &Keyed[K, V]{}
	k.s.init(SchedulerConfig{Tick: cfg.Tick, MaxPending: cfg.MaxPending, OnPanic: cfg.OnPanic})
	k.k = wheel.NewKeyed(k.s.wheel, callerLock{&k.s}, expire)
	return k
}

// Set gives a key a value, which expires d from now. If the key has one, its value and its deadline
// are replaced. The error is nil, ErrStopped, or a *LimitError.
func (k *Keyed[K, V]) Set(key K, value V, d time.Duration) error {
	return k.s.schedule(d, func(when time.Duration) error {
		err := k.s.admit(k.k.Stats().Pending, k.k.Find(key) != nil)
		if err == nil {
			k.k.Set(key, value, when)
		}
		return err
	})
}

// Update gives a key the value that f returns, in one step: f gets the key's value, and false if it
// has none. A new entry expires d from now; an existing one keeps its deadline, so that a counter
// counts within a window of time. Update returns the new value, or the error that Set would return,
// without calling f. f runs with the lock held and must not call methods of k. If f panics, no
// entry has changed.
func (k *Keyed[K, V]) Update(key K, d time.Duration, f func(value V, ok bool) V) (value V, err error) {
	err = k.s.schedule(d, func(when time.Duration) error {
		if e := k.k.Find(key); e != nil {
			e.Value = f(e.Value, true)
			value = e.Value
			return nil
		}
		if err := k.s.admit(k.k.Stats().Pending, false); err != nil {
			return err
		}
		value = f(value, false)
		k.k.Set(key, value, when)
		return nil
	})
	return value, err
}

// Move changes the deadline of a key's entry to d from now, earlier or later than before. The error
// is nil, ErrStopped, or ErrUnknownKey if the key has no entry.
func (k *Keyed[K, V]) Move(key K, d time.Duration) error {
	return k.s.schedule(d, func(when time.Duration) error {
		return k.s.known(k.k.Move(key, when))
	})
}

// Remove removes the entry of a key and returns its value. True means that there was one: expire
// will not get it.
func (k *Keyed[K, V]) Remove(key K) (value V, ok bool) { return k.k.Remove(key) }

// Get returns the value of a key. It does not change its deadline. An entry that is due is found
// until expire gets it.
func (k *Keyed[K, V]) Get(key K) (value V, ok bool) { return k.k.Get(key) }

// When returns the deadline of a key's entry, and false if there is none.
func (k *Keyed[K, V]) When(key K) (when time.Time, ok bool) {
	offset, ok := k.k.When(key)
	if ok {
		when = k.s.start.Add(offset)
	}
	return when, ok
}

// Len returns the number of entries.
func (k *Keyed[K, V]) Len() int { return k.k.Len() }

// All yields a snapshot of the entries, in no order. The loop's body may call any method.
func (k *Keyed[K, V]) All() iter.Seq2[K, V] { return k.k.All() }

// Drain removes all entries, at one moment, and then calls f with each, in the order of their
// deadlines. f may be nil, and may set entries, which stay. Drain returns how many there were.
func (k *Keyed[K, V]) Drain(f func(key K, value V)) int { return k.k.Drain(f) }

// Stop ends the Keyed, as [Scheduler.Stop] does, and returns the entries in the order of their
// deadlines.
func (k *Keyed[K, V]) Stop() []Entry[K, V] {
	k.s.lockAsCaller()
	defer k.s.mu.Unlock()
	k.s.stop()
	return k.k.TakeAll()
}

// Shutdown is Stop, and then waits for expire to return, or until ctx is done, whose error it
// returns then. expire must not call it.
func (k *Keyed[K, V]) Shutdown(ctx context.Context) ([]Entry[K, V], error) {
	left := k.Stop()
	return left, k.s.wait(ctx)
}

// Stats returns the Keyed's numbers: calls are entries passed to expire, Panics are those of
// expire, and lateness is that of the first entry of each batch.
func (k *Keyed[K, V]) Stats() SchedulerStats {
	k.s.lockAsCaller()
	defer k.s.mu.Unlock()
	return k.s.stats(k.k.Stats())
}
