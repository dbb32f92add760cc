package timing

import "time"

// KeyedWheel is a [Keyed] for the owner of a [Wheel], on whose goroutine every method and the
// expire function run: it has no goroutine, no clock and no lock. Make one with [NewKeyedWheel]:
// the methods of the zero KeyedWheel panic.
//
// It has a wheel of its own, and one timer in the owner's Wheel, for its first deadline. Drain of
// that Wheel takes the timer away: drain the KeyedWheel before. With one entry it takes 14 KB.
type KeyedWheel[K comparable, V any] struct {
	core[K, V]
	owner *Wheel
	alarm Timer
	call  func() // ring, made once
}

// NewKeyedWheel returns an empty KeyedWheel on a Wheel, with its tick and its time.
//
// expire gets what [NewKeyed] says, one batch in each Advance of the owner's, as one timer of its.
// If there is more, the owner's Next is not after its time, as where a budget has run out: so go on
// until it is. A panic goes on through the owner's Advance.
func NewKeyedWheel[K comparable, V any](owner *Wheel, expire func(expired []Entry[K, V])) *KeyedWheel[K, V] {
	mustBeMade(owner)
	k := &KeyedWheel[K, V]{owner: owner}
	w := New(Config{Tick: time.Duration(owner.tick)})
	w.Advance(owner.now, 0)
	k.init(w, noLock{}, expire)
	k.call = k.ring
	return k
}

// noLock is the lock of what has one owner.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// Set is that of a [Keyed], but the entry expires at when, an offset on the owner's clock. If that
// is not after the owner's time, it expires in the next Advance.
func (k *KeyedWheel[K, V]) Set(key K, value V, when time.Duration) {
	k.tellTime()
	k.set(key, value, when)
	k.wakeBy(when)
}

// Move is that of a [Keyed], with the time at which the entry expires.
func (k *KeyedWheel[K, V]) Move(key K, when time.Duration) bool {
	k.tellTime()
	if !k.wheel.Extend(k.timer(key), when) {
		return false
	}
	k.wakeBy(when)
	return true
}

// Drain is that of a [Keyed]. A KeyedWheel that it has emptied has no timer in its owner's Wheel,
// so there is nothing to stop.
func (k *KeyedWheel[K, V]) Drain(f func(key K, value V)) int {
	mustBeMade(k.wheel)
	k.owner.Stop(k.alarm)
	return k.core.Drain(f)
}

// tellTime tells the wheel of the keys what has passed, but runs nothing that is due.
func (k *KeyedWheel[K, V]) tellTime() {
	mustBeMade(k.wheel)
	k.wheel.now = k.owner.now
}

// wakeBy makes sure that the owner's wheel calls ring when what was just set or moved is due.
func (k *KeyedWheel[K, V]) wakeBy(when time.Duration) {
	if alarm, ok := k.owner.When(k.alarm); !ok || when < alarm {
		k.arm()
	}
}

// arm sets the alarm for the first deadline.
func (k *KeyedWheel[K, V]) arm() {
	if when, ok := k.wheel.Next(); ok && !k.owner.Reset(k.alarm, when) {
		k.alarm = k.owner.At(when, k.call)
	}
}

// ring is the alarm's callback: one batch.
func (k *KeyedWheel[K, V]) ring() {
	defer func() { // as expire may panic
		k.endBatch()
		k.arm()
	}()
	if k.takeDue(k.owner.now); len(k.batch) > 0 {
		k.expire(k.batch)
	}
}
