package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// Keyed is a timing wheel of keys with values that a loop owns, a cache whose entries expire, say:
// a [timing.Keyed] without a lock, on the loop's own wheel. Its methods must be called on the loop,
// and so is the expire function. Make one with [NewKeyed], one for each loop with [NewLocal].
type Keyed[K comparable, V any] struct {
	l *Loop
	k *timing.KeyedWheel[K, V]
}

// NewKeyed returns an empty Keyed on a loop. It must be called there.
//
// expire gets what has expired, in the order of the deadlines, up to 256 entries at a time, as a
// timer of the loop would be called. The entries have been removed, so their keys may be set again.
// The slice is only valid until expire returns. A panic is logged and counted. nil: entries just
// go.
func NewKeyed[K comparable, V any](l *Loop, expire func(expired []timing.Entry[K, V])) *Keyed[K, V] {
	l.owner.Check("NewKeyed")
	return &Keyed[K, V]{l, timing.NewKeyedWheel(l.wheel.Wheel, expire)}
}

// touch is called before each change, which the loop must know of to set its bell.
func (k *Keyed[K, V]) touch(method string) {
	k.l.owner.Check(method)
	k.l.wheel.touched = true
}

// Set gives a key a value, which expires d from now. If the key has one, both its value and its
// deadline are replaced. A d of 0 or less means at once, but not inline.
func (k *Keyed[K, V]) Set(key K, value V, d time.Duration) {
	k.touch("Keyed.Set")
	k.k.Set(key, value, k.l.after(d))
}

// Move has the entry of a key expire d from now and reports true; false if there is none.
func (k *Keyed[K, V]) Move(key K, d time.Duration) bool {
	k.touch("Keyed.Move")
	return k.k.Move(key, k.l.after(d))
}

// Remove takes out the entry of a key and returns its value. True means that expire will not get
// it.
func (k *Keyed[K, V]) Remove(key K) (value V, ok bool) {
	k.touch("Keyed.Remove")
	return k.k.Remove(key)
}

// Get returns the value of a key. It does not move its deadline. An entry whose time has come is
// found until expire gets it.
func (k *Keyed[K, V]) Get(key K) (value V, ok bool) {
	k.l.owner.Check("Keyed.Get")
	return k.k.Get(key)
}

// Len returns the number of entries.
func (k *Keyed[K, V]) Len() int {
	k.l.owner.Check("Keyed.Len")
	return k.k.Len()
}

// Drain takes out all entries, and then calls f with each, in the order of their deadlines. f may
// be nil, and may set entries, which stay. It returns how many there were.
func (k *Keyed[K, V]) Drain(f func(key K, value V)) int {
	k.touch("Keyed.Drain")
	return k.k.Drain(f)
}
