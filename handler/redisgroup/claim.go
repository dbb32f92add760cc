package redisgroup

import (
	"context"
	"errors"
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

// forgetClaim has a name that is owner's not claimed again.
func (k *keeper) forgetClaim(name, owner string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.claims[name].owner == owner {
		delete(k.claims, name)
	}
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
