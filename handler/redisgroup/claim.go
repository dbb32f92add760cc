package redisgroup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

func (k *keeper) claimKeys(node string) []string {
	h := k.hub
	return []string{h.keys.claims(), h.keys.nodes(), h.keys.claimed(node), h.keys.reaping(), h.keys.claimFence(h.node)}
}

// An ask is one call of claim.lua, and its answer.
type ask struct {
	claimed
	keys []string
	args []any
	ok   bool
	err  error
}

// newAsk makes a question, and gives it its number: it is void if a later one was there with again.
// That is for a name of which Redis was asked before without an answer: the question may still be
// on its way.
func (k *keeper) newAsk(op string, c claimed, again bool) ask {
	node := k.nameLocked()
	return ask{claimed: c, keys: k.claimKeys(node), args: []any{op, node, c.name, c.owner, k.hub.commands.Add(1), again}}
}

// exchange asks all in one round trip.
func (k *keeper) exchange(ctx context.Context, asks []ask) {
	if len(asks) == 0 {
		return
	}
	pipe := k.hub.topo.client.Pipeline()
	cmds := make([]*redis.Cmd, len(asks))
	for i, a := range asks {
		cmds[i] = claimScript.EvalSha(ctx, pipe, a.keys, a.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range asks {
		a, cmd := &asks[i], cmds[i]
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmd = claimScript.Run(ctx, k.hub.topo.client, a.keys, a.args...)
		}
		n, err := cmd.Int()
		a.ok, a.err = n == 1, err
	}
}

// isVoid reports whether a question came behind a later one: it was about another name, and this
// one is to be asked once more, unless that was done meanwhile.
func isVoid(err error) bool { return redis.HasErrorPrefix(err, "STALE") }

// reclaim claims all names of this node in its life: with the next lease again, from the first on
// that Redis does not answer.
func (k *keeper) reclaim(ctx context.Context) {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.claims))
	k.mu.Unlock()
	for some := range slices.Chunk(all, maxPay) {
		if k.claimAgain(ctx, some) != nil {
			k.mu.Lock()
			k.unclaimed = true
			k.mu.Unlock()
			return
		}
	}
}

// claimAgain claims names again. They may be released meanwhile, and also while Redis does it.
func (k *keeper) claimAgain(ctx context.Context, all []claimed) (err error) {
	k.mu.Lock()
	var asks []ask
	for _, c := range all {
		if k.claims[c.name] == c {
			asks = append(asks, k.newAsk("claim", c, false))
		}
	}
	k.mu.Unlock()
	k.exchange(ctx, asks)
	var released, taken []claimed
	k.mu.Lock()
	for _, a := range asks {
		switch ours := k.claims[a.name] == a.claimed; {
		case !ours && (a.ok || a.err != nil):
			k.debts.add(a.claimed, false)
			released = append(released, a.claimed)
		case ours && a.err == nil && !a.ok:
			delete(k.claims, a.name)
			taken = append(taken, a.claimed)
		}
		if a.err != nil {
			err = a.err
		}
	}
	k.mu.Unlock()
	for _, c := range taken {
		k.hub.report(&LostError{Room: c.name, Err: ErrTaken})
	}
	return errors.Join(err, k.giveBack(ctx, released...))
}

// Claim makes a name unique over all processes: a nickname, a job, a device that may be connected
// once. It is owner's, a text of the caller's choice, until it is released, or the process has been
// dead for Config.Lease. The same owner may claim it again, also from another process, which then
// has it: so a client that lost its server gets its name back at once if owner is a secret of its
// own. ErrTaken: it is another's. It asks Redis: never call it on a loop; see loop.Offload.
//
// With another error owner has it no more than before: should Redis have granted it, and its answer
// been lost, the Hub gives it back once Redis answers.
//
// A process that was cut off for longer than the lease may lose a name to another; that goes to
// Config.OnError, as a *LostError with ErrTaken.
func (h *Hub) Claim(ctx context.Context, name, owner string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	c, k := claimed{name, owner}, &h.keeper
	for {
		one, ok := k.beginClaim(c)
		if !ok {
			return errAway
		}
		k.exchange(ctx, one)
		k.endClaim(c, one[0])
		switch {
		case isVoid(one[0].err):
		case one[0].err == nil && !one[0].ok:
			return ErrTaken
		default:
			return one[0].err
		}
	}
}

// beginClaim makes the question of a claim, and reports whether it may be asked.
func (k *keeper) beginClaim(c claimed) (one []ask, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.debts.begin(c) {
		return nil, false
	}
	return []ask{k.newAsk("claim", c, k.debts.has(c))}, true
}

// endClaim takes what Redis has said to a claim.
func (k *keeper) endClaim(c claimed, a ask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.debts.end(c)
	switch {
	case a.ok:
		k.claims[c.name] = c
		k.debts.remove(c)
	case !isVoid(a.err) && judge(a.err) == unclear && k.claims[c.name] != c:
		k.debts.add(c, true)
	}
}

// Release gives back a name that owner has claimed. ErrTaken: it is not owner's, or has been
// claimed by another process since. It asks Redis, as Claim does: for a connection that has closed,
// where Offload does not run any more, on a goroutine of yours, with a timeout. With another error
// it was not given back yet: the Hub does that once Redis answers, unless it is claimed again
// before.
//
// What one owner has claimed twice in a process is released at once: if a client's new connection
// claims the name of its old one, the old one must not release it.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	c, k := claimed{name, owner}, &h.keeper
	for again := false; ; again = true {
		one := k.beginRelease(c, again)
		if len(one) == 0 {
			return nil // it was claimed meanwhile
		}
		k.exchange(ctx, one)
		switch a := one[0]; {
		case isVoid(a.err):
		case a.err != nil:
			return a.err
		default:
			k.settled(c)
			if !a.ok {
				return ErrTaken
			}
			return nil
		}
	}
}

// beginRelease makes the question of a release, and notes that it is owed until it is answered, if
// Redis may have it; none if it was made before, and c is claimed once more.
func (k *keeper) beginRelease(c claimed, again bool) []ask {
	k.mu.Lock()
	defer k.mu.Unlock()
	if again && (k.claims[c.name] == c || k.debts.asking[c] > 0) {
		return nil
	}
	one := []ask{k.newAsk("release", c, k.debts.has(c))}
	if k.claims[c.name] == c {
		delete(k.claims, c.name)
		k.debts.add(c, false)
	}
	return one
}

// settled notes that c was released.
func (k *keeper) settled(c claimed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.debts.remove(c)
}

// Owner returns who has claimed a name, and false if nobody has. It asks Redis, as Claim does.
func (h *Hub) Owner(ctx context.Context, name string) (owner string, ok bool, err error) {
	held, err := h.topo.client.HGet(ctx, h.keys.claims(), name).Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	_, owner, ok = strings.Cut(held, " ")
	return owner, ok, err
}
