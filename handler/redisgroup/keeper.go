package redisgroup

import (
	"context"
	"errors"
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

	wake    chan struct{}
	leasing sync.Mutex // held while the lease is renewed

	mu     sync.Mutex
	life   int
	held   map[string]*hold // names that are ours
	leased bool             // there was a lease in this life
	until  time.Time        // when the lease ends at the earliest, by our clock
	term   int              // how often it may have run out: what was ours before may be another's
	untold bool             // who is here was not told in this life

	dirty     bool             // Redis may have other names than we do
	asking    map[string]int   // by name: questions under way
	newest    uint64           // the newest token that was seen
	returns   []*claimQuestion // that give back what nobody here wants any more
	lostNames []string         // of which Config.OnError is to be told
}

func (k *keeper) init(h *Hub) {
	k.hub, k.lostCh, k.wake = h, make(chan string, 1), make(chan struct{}, 1)
	k.held, k.asking = make(map[string]*hold), make(map[string]int)
}

// name is that of this node in this life.
func (k *keeper) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nameLocked()
}

func (k *keeper) nameLocked() string { return k.hub.node + "." + strconv.Itoa(k.life) }

// hurry renews the lease at once.
func (k *keeper) hurry() { signal(k.wake) }

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
	keepSlack = 5 * time.Millisecond // after a lease has run out, by Redis' clock
)

// run renews the lease when that is due, and looks again when the next lease of anybody runs out.
func (k *keeper) run() {
	lease := k.hub.cfg.Lease
	renewed, touched := time.Now(), time.Now()
	var delays backoff
	for {
		if time.Since(touched) > k.hub.cfg.HistoryTime/4 {
			touched = time.Now()
			k.hub.report(k.touch(k.hub.ctx))
		}
		expires, err := k.renew(k.hub.ctx)
		wait := min(lease/3, expires+keepSlack)
		if err == nil {
			renewed = time.Now()
			delays.reset()
		} else {
			wait = min(delays.next(), lease/6)
			if k.hub.ctx.Err() == nil && time.Since(renewed) > lease {
				k.hub.report(err)
			}
		}
		k.reportLost()
		wake := k.wake
		if err != nil {
			wake = nil // those who hurry wait, too
		}
		select {
		case <-k.hub.ctx.Done():
			return
		case dead := <-k.lostCh:
			k.rise(dead)
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// touch keeps the streams of rooms that have members here.
func (k *keeper) touch(ctx context.Context) error {
	pipe := k.hub.servers.client.Pipeline()
	for _, r := range k.hub.all() {
		if r.kind == orderedRoom {
			pipe.PExpire(ctx, r.key, k.hub.cfg.HistoryTime)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return err
}

// renew renews the lease, does what that asks for, and reaps who is dead. It returns when the next
// lease runs out.
func (k *keeper) renew(ctx context.Context) (time.Duration, error) {
	alive, expires, dead, names, err := k.lease(ctx)
	if err != nil || !alive {
		return 0, err
	}
	k.mu.Lock()
	untold := k.untold
	k.untold = false
	k.mu.Unlock()
	if untold {
		k.hub.reassertAll()
	}
	if err := k.giveBack(ctx); err != nil {
		return 0, err
	}
	k.mu.Lock()
	differ := k.dirty || names != len(k.held)
	k.mu.Unlock()
	if differ {
		if err := k.sync(ctx); err != nil {
			return 0, err
		}
	}
	if dead != "" {
		return 0, k.reap(ctx, dead) // there may be more
	}
	return expires, nil
}

// lease renews the lease. If the node was declared dead, or Redis has forgotten it, it begins
// another life, which has no lease yet.
func (k *keeper) lease(ctx context.Context) (alive bool, expires time.Duration, dead string, names int, err error) {
	k.leasing.Lock()
	defer k.leasing.Unlock()
	h, had, ever := k.hub, 0, 0
	k.mu.Lock()
	node := k.nameLocked()
	if k.leased {
		had = 1
	}
	if k.leased || k.life > 0 {
		ever = 1
	}
	k.mu.Unlock()
	began := time.Now()
	keys := []string{h.keys.nodes(), h.keys.reaping(), h.keys.counts(), h.keys.mark(), h.keys.loss()}
	answer, err := leaseScript.Run(ctx, h.servers.client, keys, node, h.cfg.Lease.Milliseconds(), had, reapClaim.Milliseconds(), ever).Slice()
	if err != nil {
		return false, 0, "", 0, err
	}
	if len(answer) != 4 {
		return false, 0, "", 0, errAnswer
	}
	lives, _ := answer[0].(int64)
	ms, _ := answer[1].(int64)
	dead, _ = answer[2].(string)
	count, _ := answer[3].(int64)
	if lives == 0 {
		k.rise(node)
		return false, 0, "", 0, nil
	}
	k.mu.Lock()
	if k.leased && began.After(k.until) {
		k.term++
		k.dirty = true
	}
	k.leased, k.until = true, began.Add(h.cfg.Lease)
	k.mu.Unlock()
	return true, time.Duration(ms) * time.Millisecond, dead, int(count), nil
}

// secure returns when the node has a lease: in its life, or in another.
func (k *keeper) secure(ctx context.Context) error {
	for range 3 {
		if alive, _, _, _, err := k.lease(ctx); alive || err != nil {
			k.hurry() // the rest is the keeper's
			return err
		}
	}
	return errors.New("redisgroup: no lease, as Redis forgets it at once")
}

// rise ends a life and begins another: all that this node has is told anew, under another name,
// once there is a lease.
func (k *keeper) rise(dead string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if dead != k.nameLocked() {
		return
	}
	k.life++
	k.term++
	k.leased, k.untold, k.dirty, k.until = false, true, true, time.Time{}
	k.hub.cfg.Logger.Warn().Msg("redisgroup: this node was declared dead, or Redis has forgotten it; telling again who is here")
}

// reap removes what a dead node had, bucket by bucket: a tomb first, behind which nothing of it can
// be added.
func (k *keeper) reap(ctx context.Context, dead string) error {
	h := k.hub
	for first := 0; first < h.keys.buckets; first += maxAsk {
		n := min(maxAsk, h.keys.buckets-first)
		pipe := h.servers.client.Pipeline()
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
	keys := []string{h.keys.claims(), h.keys.nodes(), h.keys.claimed(dead), h.keys.counts(), h.keys.reaping()}
	err := buryScript.Run(ctx, h.servers.client, keys, dead).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// reapUsers is how many users of a room one script removes.
const reapUsers = 200

func (k *keeper) reapRoom(ctx context.Context, dead, room string) error {
	h := k.hub
	at := h.keys.place(orderedRoom, room)
	keys := []string{h.keys.members(at, dead), h.keys.users(at), at.key, h.keys.joined(at.bucket, dead)}
	for {
		from := h.node + ":" + strconv.FormatUint(h.seq.Add(1), 10)
		left, err := reapScript.Run(ctx, h.servers.client, keys, append(h.streamArgs(), room, from, reapUsers)...).Int()
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
	leased := k.leased
	k.mu.Unlock()
	if !leased {
		return nil
	}
	return k.reap(ctx, k.name())
}
