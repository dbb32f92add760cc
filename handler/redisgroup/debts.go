package redisgroup

import (
	"context"
	"maps"
	"slices"
)

// A claimed is a name, and whose it is.
type claimed struct{ name, owner string }

// Debts are names that Redis has as ours, or may have, and are not: it did not answer when they
// were released, or when they were claimed. They are given back with the next lease that it renews,
// which is soon then. The keeper's mu guards them.
type debts struct {
	owed   map[claimed]bool // true: it is in doubt, as a claim was not answered
	doubts int              // of these
	asked  map[claimed]asked
	fresh  chan struct{} // has a token when there is something to give back
}

// An asked is what is known of the questions about a name that may be on their way to Redis. Each one
// that is asked meanwhile voids those before it, wherever they are: what counts is the last.
type asked struct {
	open int    // so many wait for their answers
	done uint64 // the last one that was answered while others waited, by its number
	lost uint64 // the last one that will not be, if none behind it was answered
}

// maxDoubts is how many claims may have been left without an answer. Then no more is asked, until
// Redis answers: each takes memory, and anybody may claim a name.
const maxDoubts = 4096

func (d *debts) init() {
	d.owed, d.asked, d.fresh = make(map[claimed]bool), make(map[claimed]asked), make(chan struct{}, 1)
}

// ask notes that there is a question about c, until its answer, and reports whether others may be
// on their way.
func (d *debts) ask(c claimed) (others bool) {
	q := d.asked[c]
	others = q != asked{}
	q.open++
	d.asked[c] = q
	return others
}

// answer is the end of what ask has begun. It reports whether there is a later one that counts more,
// as it was answered before, or may have been there.
func (d *debts) answer(a *ask) (later bool) {
	q := d.asked[a.claimed]
	q.open--
	later = a.number < max(q.done, q.lost)
	switch {
	case later:
	case a.err == nil:
		q.done, q.lost = a.number, 0
	case a.lost():
		q.lost = a.number
	}
	if q.open == 0 {
		q.done = 0
	}
	if q == (asked{}) {
		delete(d.asked, a.claimed)
	} else {
		d.asked[a.claimed] = q
	}
	return later
}

// add notes that c has to be given back, soon.
func (d *debts) add(c claimed, doubt bool) {
	d.owe(c, doubt)
	d.wake()
}

// owe notes that c has to be given back.
func (d *debts) owe(c claimed, doubt bool) {
	if d.has(c) {
		return
	}
	d.owed[c] = doubt
	if doubt {
		d.doubts++
	}
}

// wake has what is owed given back soon.
func (d *debts) wake() {
	select {
	case d.fresh <- struct{}{}:
	default:
	}
}

func (d *debts) has(c claimed) bool {
	_, owed := d.owed[c]
	return owed
}

// remove notes that Redis knows whose c is.
func (d *debts) remove(c claimed) {
	if d.owed[c] {
		d.doubts--
	}
	delete(d.owed, c)
}

// mayAsk reports whether one more may be in doubt.
func (d *debts) mayAsk() bool { return d.doubts < maxDoubts }

// maxPay is how many names are asked for in one round trip.
const maxPay = 64

// pay gives back what is owed.
func (k *keeper) pay(ctx context.Context) {
	k.mu.Lock()
	owed := slices.Collect(maps.Keys(k.debts.owed))
	k.mu.Unlock()
	for some := range slices.Chunk(owed, maxPay) {
		if k.giveBack(ctx, some...) != nil {
			return
		}
	}
}

// giveBack releases names that are owed, but not those that are claimed once more, or asked for just
// now. What Redis does not answer is owed still.
func (k *keeper) giveBack(ctx context.Context, all ...claimed) (err error) {
	k.mu.Lock()
	var asks []*ask
	for _, c := range all {
		switch {
		case k.claims[c.name] == c:
			k.debts.remove(c)
		case k.debts.asked[c].open == 0:
			asks = append(asks, k.newAsk("release", c))
		}
	}
	k.mu.Unlock()
	k.exchange(ctx, asks)
	for _, a := range asks {
		k.endRelease(a)
		if a.err != nil {
			err = a.err
		}
	}
	return err
}
