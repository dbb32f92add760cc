package redisgroup

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"
)

func (k *keeper) claimKeys(node string) []string {
	h := k.hub
	return []string{h.keys.claims(), h.keys.nodes(), h.keys.claimed(node), h.keys.reaping()}
}

func (k *keeper) claim(ctx context.Context, op, name, owner string) (bool, error) {
	node := k.name()
	n, err := claimScript.Run(ctx, k.hub.topo.client, k.claimKeys(node), op, node, name, owner).Int()
	return n == 1, err
}

// forgetClaim has a name that is owner's not claimed again, and reports whether it would have been.
func (k *keeper) forgetClaim(name, owner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, ok := k.claims[name]; !ok || now.owner != owner {
		return false
	}
	delete(k.claims, name)
	return true
}

// reclaim claims all names of this node in its life: with the next lease again, from the first on
// that Redis does not answer.
func (k *keeper) reclaim(ctx context.Context) {
	k.mu.Lock()
	claims, astray := maps.Clone(k.claims), maps.Clone(k.astray)
	k.mu.Unlock()
	err := eachClaim(ctx, astray, k.giveBack)
	if err == nil {
		err = eachClaim(ctx, claims, k.claimAgain)
	}
	if err != nil {
		k.mu.Lock()
		k.unclaimed = true
		k.mu.Unlock()
	}
}

// eachClaim calls f for each of claims, up to the first error.
func eachClaim(ctx context.Context, claims map[string]claimant, f func(context.Context, string, claimant) error) error {
	for name, c := range claims {
		if err := f(ctx, name, c); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a name is c's here.
func (k *keeper) has(name string, c claimant) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, ok := k.claims[name]
	return ok && now == c
}

// claimAgain claims a name again. It may be released meanwhile, and also while Redis does it.
func (k *keeper) claimAgain(ctx context.Context, name string, c claimant) error {
	if !k.has(name, c) {
		return nil
	}
	ok, err := k.claim(ctx, "claim", name, c.owner)
	if !k.has(name, c) && (ok || err != nil) {
		return errors.Join(err, k.giveBack(ctx, name, c))
	}
	if err == nil && !ok && k.forgetClaim(name, c.owner) {
		k.hub.report(&LostError{Room: name, Err: ErrTaken})
	}
	return err
}

// giveBack releases a name that was claimed though it had been released before: with the next lease
// again, if Redis does not answer.
func (k *keeper) giveBack(ctx context.Context, name string, c claimant) error {
	k.mu.Lock()
	now, ours := k.claims[name]
	ours = ours && now == c // it was claimed once more
	if ours {
		delete(k.astray, name)
	} else {
		k.astray[name] = c
	}
	k.mu.Unlock()
	if ours {
		return nil
	}
	_, err := k.claim(ctx, "release", name, c.owner)
	if err == nil {
		k.mu.Lock()
		delete(k.astray, name)
		k.mu.Unlock()
	}
	return err
}

// Claim makes a name unique over all processes: a nickname, a job, a device that may be connected
// once. It is owner's, a text of the caller's choice, until it is released, or the process has been
// dead for Config.Lease. The same owner may claim it again, also from another process, which then
// has it: so a client that lost its server gets its name back at once if owner is a secret of its
// own. ErrTaken: it is another's. It asks Redis: never call it on a loop; see loop.Offload.
//
// A process that was cut off for longer than the lease may lose a name to another; that goes to
// Config.OnError, as a *LostError with ErrTaken.
func (h *Hub) Claim(ctx context.Context, name, owner string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	ok, err := h.keeper.claim(ctx, "claim", name, owner)
	if err == nil && !ok {
		err = ErrTaken
	}
	if err != nil {
		return err
	}
	h.keeper.mu.Lock()
	h.keeper.claims[name] = claimant{owner}
	h.keeper.mu.Unlock()
	return nil
}

// Release gives back a name that owner has claimed. ErrTaken: it is not owner's, or has been claimed
// by another process since. It asks Redis, as Claim does: for a connection that has closed, where
// Offload does not run any more, on a goroutine of yours, with a timeout.
//
// What one owner has claimed twice in a process is released at once: if a client's new connection
// claims the name of its old one, the old one must not release it.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	h.keeper.forgetClaim(name, owner)
	ok, err := h.keeper.claim(ctx, "release", name, owner)
	if err == nil && !ok {
		err = ErrTaken
	}
	return err
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
