package redisgroup

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A keeper keeps the lease of this node, and looks after nodes that have died: their users leave
// the rooms they were in. A node that was declared dead and is not comes back under another name.
type keeper struct {
	hub    *Hub
	lostCh chan string

	mu        sync.Mutex
	life      int
	held      bool               // there was a lease in this life
	untold    bool               // who is here was not told in this life
	unclaimed bool               // some names were not claimed in this life
	claims    map[string]claimed // names that are ours
	debts     debts
}

func (k *keeper) init(h *Hub) {
	k.hub, k.lostCh = h, make(chan string, 1)
	k.claims = make(map[string]claimed)
	k.debts.init()
}

// name is that of this node in this life.
func (k *keeper) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nameLocked()
}

func (k *keeper) nameLocked() string { return k.hub.node + "." + strconv.Itoa(k.life) }

// lost is told that a name of this node was declared dead.
func (k *keeper) lost(name string) {
	select {
	case k.lostCh <- name:
	default:
	}
}

// Times of the keeper.
const (
	reapClaim = 5 * time.Second      // for how long one that reaps has a node to itself
	keepRetry = time.Second          // at most, between attempts to reach Redis
	keepSlack = 5 * time.Millisecond // after a lease has run out, by Redis' clock
)

// run renews the lease when that is due, and looks again when the next lease of anybody runs out.
func (k *keeper) run() {
	lease := k.hub.cfg.Lease
	renewed, touched := time.Time{}, time.Now()
	for {
		if time.Since(touched) > k.hub.cfg.HistoryTime/4 {
			touched = time.Now()
			k.hub.report(k.touch(k.hub.ctx))
		}
		wait := min(keepRetry, lease/6)
		expires, err := k.renew(k.hub.ctx)
		if err == nil {
			renewed = time.Now()
			wait = min(lease/3, expires+keepSlack)
		} else if k.hub.ctx.Err() == nil && time.Since(renewed) > lease {
			k.hub.report(err)
		}
		select {
		case <-k.hub.ctx.Done():
			return
		case dead := <-k.lostCh:
			if dead == k.name() {
				k.rise()
			}
		case <-k.debts.fresh:
			if !k.hub.topo.pause(min(keepRetry, wait)) {
				return
			}
		case <-time.After(wait):
		}
	}
}

// touch keeps the streams of rooms that have members here.
func (k *keeper) touch(ctx context.Context) error {
	pipe := k.hub.topo.client.Pipeline()
	for _, r := range k.hub.all() {
		if r.kind == orderedRoom {
			pipe.PExpire(ctx, r.channel, k.hub.cfg.HistoryTime)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return err
}

// renew renews the lease, and reaps who is dead. It returns when the next lease runs out.
func (k *keeper) renew(ctx context.Context) (time.Duration, error) {
	h := k.hub
	held := 0
	k.mu.Lock()
	if k.held {
		held = 1
	}
	k.mu.Unlock()
	answer, err := leaseScript.Run(ctx, h.topo.client, []string{h.keys.nodes(), h.keys.reaping()},
		k.name(), h.cfg.Lease.Milliseconds(), held, reapClaim.Milliseconds()).Slice()
	if err != nil {
		return 0, err
	}
	if len(answer) != 3 {
		return 0, errAnswer
	}
	alive, _ := answer[0].(int64)
	expires, _ := answer[1].(int64)
	dead, _ := answer[2].(string)
	if alive == 0 {
		k.rise()
		return 0, nil
	}
	k.mu.Lock()
	untold, unclaimed, owing := k.untold, k.unclaimed, len(k.debts.owed) > 0
	k.held, k.untold, k.unclaimed = true, false, false
	k.mu.Unlock()
	if untold {
		h.reassertAll()
	}
	if owing {
		k.pay(ctx)
	}
	if unclaimed {
		k.reclaim(ctx)
	}
	if dead != "" {
		if err := k.reap(ctx, dead); err != nil {
			return 0, err
		}
		return 0, nil // there may be more
	}
	return time.Duration(expires) * time.Millisecond, nil
}

// rise begins another life: all that this node has is told anew, under another name, once there is a
// lease.
func (k *keeper) rise() {
	k.mu.Lock()
	k.life++
	k.held, k.untold, k.unclaimed = false, true, true
	k.mu.Unlock()
	k.hub.cfg.Logger.Warn().Msg("redisgroup: this node was declared dead, or Redis has forgotten it; telling again who is here")
}

// reap removes what a dead node had, bucket by bucket: a tomb first, behind which nothing of it can
// be added.
func (k *keeper) reap(ctx context.Context, dead string) error {
	h := k.hub
	if err := h.topo.ready(ctx); err != nil {
		return err
	}
	for first := 0; first < h.keys.buckets; first += maxAsk {
		n := min(maxAsk, h.keys.buckets-first)
		pipe := h.topo.client.Pipeline()
		rooms := make([]*redis.StringSliceCmd, n)
		for i := range n {
			pipe.Set(ctx, h.keys.tomb(first+i, dead), 1, time.Hour)
			rooms[i] = pipe.SMembers(ctx, h.keys.joined(first+i, dead))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		for _, cmd := range rooms {
			for _, room := range cmd.Val() {
				if err := k.reapRoom(ctx, dead, room); err != nil {
					return err
				}
			}
		}
	}
	return claimScript.Run(ctx, h.topo.client, k.claimKeys(dead), "bury", dead, "", "").Err()
}

// reapUsers is how many users of a room one script removes.
const reapUsers = 200

func (k *keeper) reapRoom(ctx context.Context, dead, room string) error {
	h := k.hub
	at := h.keys.place(orderedRoom, room)
	keys := []string{h.keys.members(at, dead), h.keys.users(at), at.channel, h.keys.joined(at.bucket, dead)}
	for {
		from := h.node + ":" + strconv.FormatUint(h.seq.Add(1), 10)
		left, err := reapScript.Run(ctx, h.topo.client, keys, h.topo.command(), h.cfg.History, h.cfg.HistoryTime.Milliseconds(),
			room, from, reapUsers).Int()
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
	}
}

// resign gives up all that this node has.
func (k *keeper) resign(ctx context.Context) error {
	k.mu.Lock()
	held := k.held
	k.mu.Unlock()
	if !held {
		return nil
	}
	return k.reap(ctx, k.name())
}
