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
	asking map[claimed]int  // claims that are on their way: nothing is given back meanwhile
	fresh  chan struct{}    // has a token when something was added
}

// maxDoubts is how many claims may have been left without an answer. Then no more is asked, until
// Redis answers: each takes memory, and anybody may claim a name.
const maxDoubts = 4096

func (d *debts) init() {
	d.owed, d.asking, d.fresh = make(map[claimed]bool), make(map[claimed]int), make(chan struct{}, 1)
}

// add notes that c has to be given back.
func (d *debts) add(c claimed, doubt bool) {
	if d.has(c) {
		return
	}
	d.owed[c] = doubt
	if doubt {
		d.doubts++
	}
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

// begin notes that c is being claimed, and reports whether it may be.
func (d *debts) begin(c claimed) bool {
	if d.doubts >= maxDoubts {
		return false
	}
	d.asking[c]++
	return true
}

// end is the end of what begin has begun.
func (d *debts) end(c claimed) {
	if d.asking[c]--; d.asking[c] == 0 {
		delete(d.asking, c)
	}
}

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

// giveBack releases names that are owed, but not those that are claimed once more. What Redis does
// not answer is owed still.
func (k *keeper) giveBack(ctx context.Context, all ...claimed) (err error) {
	k.mu.Lock()
	var asks []ask
	for _, c := range all {
		switch {
		case k.claims[c.name] == c:
			k.debts.remove(c)
		case k.debts.asking[c] == 0:
			asks = append(asks, k.newAsk("release", c, true))
		}
	}
	k.mu.Unlock()
	k.exchange(ctx, asks)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range asks {
		if a.err == nil {
			k.debts.remove(a.claimed)
		} else {
			err = a.err
		}
	}
	return err
}
