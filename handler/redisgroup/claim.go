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
	number uint64
	keys   []string
	args   []any
	ok     bool
	err    error
}

// newAsk makes a question, and gives it its number. If others about c are on their way, or may be, they
// are void once this one was there. It has to be exchanged, and its answer told to the debts.
func (k *keeper) newAsk(op string, c claimed) *ask {
	node := k.nameLocked()
	a := &ask{claimed: c, number: k.hub.commands.Add(1), keys: k.claimKeys(node)}
	a.args = []any{op, node, c.name, c.owner, a.number, k.debts.ask(c)}
	return a
}

// exchange asks all in one round trip, or in two if Redis does not know the script yet.
func (k *keeper) exchange(ctx context.Context, asks []*ask) {
	k.send(ctx, "evalsha", claimScript.Hash(), asks)
	var unknown []*ask
	for _, a := range asks {
		if redis.HasErrorPrefix(a.err, "NOSCRIPT") {
			unknown = append(unknown, a)
		}
	}
	k.send(ctx, "eval", claimLua, unknown)
}

// send sends each question once, and takes the answers.
func (k *keeper) send(ctx context.Context, command, script string, asks []*ask) {
	if len(asks) == 0 {
		return
	}
	pipe := k.hub.topo.client.Pipeline()
	cmds := make([]once, len(asks))
	for i, a := range asks {
		args := []any{command, script, len(a.keys)}
		for _, key := range a.keys {
			args = append(args, key)
		}
		cmds[i] = once{redis.NewCmd(ctx, append(args, a.args...)...)}
		cmds[i].SetFirstKeyPos(3)
		_ = pipe.Process(ctx, cmds[i]) // it waits for Exec
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, a := range asks {
		n, err := cmds[i].Int()
		a.ok, a.err = n == 1, err
	}
}

// A once is a command that the client of a cluster does not send again either when it is not
// answered: the first one may arrive after what is asked next.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// lost reports whether a question was not answered, and may have been there.
func (a *ask) lost() bool { return judge(a.err) == unclear && !isVoid(a.err) }

// isVoid reports whether a question came behind a later one that voids all before it. That may have
// been about another name: this one is to be asked once more, unless that was done meanwhile.
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
	var asks []*ask
	for _, c := range all {
		if k.claims[c.name] == c {
			asks = append(asks, k.newAsk("claim", c))
		}
	}
	k.mu.Unlock()
	k.exchange(ctx, asks)
	var released, taken []claimed
	k.mu.Lock()
	for _, a := range asks {
		later := k.debts.answer(a)
		switch ours := k.claims[a.name] == a.claimed; {
		case !ours && (a.ok || a.err != nil):
			k.debts.add(a.claimed, false)
			released = append(released, a.claimed)
		case ours && a.err == nil && !a.ok && !later:
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
		k.exchange(ctx, []*ask{one})
		switch again := k.endClaim(one); {
		case again:
		case one.err == nil && !one.ok:
			return ErrTaken
		default:
			return one.err
		}
	}
}

// beginClaim makes the question of a claim, and reports whether it may be asked.
func (k *keeper) beginClaim(c claimed) (one *ask, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.debts.mayAsk() {
		return nil, false
	}
	return k.newAsk("claim", c), true
}

// endClaim takes what Redis has said to a claim, and reports whether it is to be asked once more: it
// was void, or it was granted and there is a release behind it.
func (k *keeper) endClaim(a *ask) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, later := a.claimed, k.debts.answer(a)
	ours := k.claims[c.name] == c
	switch {
	case isVoid(a.err), a.ok && later && !ours:
		return true
	case a.ok:
		k.claims[c.name] = c
		k.debts.remove(c)
	case a.lost() && !later && !ours:
		k.debts.add(c, true)
	}
	return false
}

// Release gives back a name that owner has claimed in this process. ErrTaken: it has not, or it has
// been claimed by another process since. It asks Redis, as Claim does: for a connection that has
// closed, where Offload does not run any more, on a goroutine of yours, with a timeout. With another
// error it was not given back yet: the Hub does that once Redis answers, unless it is claimed again
// before.
//
// What one owner has claimed twice in a process is released at once: if a client's new connection
// claims the name of its old one, the old one must not release it.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	c, k := claimed{name, owner}, &h.keeper
	for first := true; ; first = false {
		one := k.beginRelease(c, first)
		switch {
		case one == nil && first:
			return ErrTaken
		case one == nil:
			return nil // the Hub has given it back, or it was claimed meanwhile
		}
		k.exchange(ctx, []*ask{one})
		k.endRelease(one)
		switch {
		case isVoid(one.err):
		case one.err == nil && !one.ok:
			return ErrTaken
		default:
			return one.err
		}
	}
}

// beginRelease makes the question of a release, and notes that it is owed until it is answered; nil
// if Redis has nothing of c from here. The first takes c away from who has it, the next ones only
// see whether that was done.
func (k *keeper) beginRelease(c claimed, first bool) *ask {
	k.mu.Lock()
	defer k.mu.Unlock()
	ours := k.claims[c.name] == c
	switch {
	case ours && first:
		delete(k.claims, c.name)
		k.debts.add(c, false)
	case ours, !k.debts.has(c):
		return nil
	}
	return k.newAsk("release", c)
}

// endRelease takes what Redis has said to a release. If nothing was asked later that counts more, c is
// nobody's now, also if a claim from before was answered meanwhile, or it is owed.
func (k *keeper) endRelease(a *ask) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, later := a.claimed, k.debts.answer(a)
	if !later && (a.err == nil || a.lost()) {
		if k.claims[c.name] == c {
			delete(k.claims, c.name)
		}
		k.debts.owe(c, false)
	}
	if !later && a.err == nil {
		k.debts.remove(c)
	}
	if k.debts.has(c) {
		k.debts.wake()
	}
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
