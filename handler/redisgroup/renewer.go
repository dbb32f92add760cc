package redisgroup

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// A renewer keeps the lease of this node, and cleans up after dead nodes: their users leave their
// rooms. A node that was declared dead but is alive continues under another name.
type renewer struct {
	hub     *Hub
	wake    chan struct{} // has a token if the lease must be renewed at once
	reaping atomic.Bool   // a dead node is being reaped

	mu          sync.Mutex
	clock       onredis.Clock
	incarnation int
	until       time.Time // the earliest end of the lease; zero if this incarnation has had none
	term        int       // how often the lease may have expired, and names been lost

	held   map[string]*nameLease // names that this process holds
	dirty  bool                  // Redis may have other names than this process
	newest uint64                // the newest token seen
}

// name returns the name of this node in this incarnation.
func (k *renewer) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nameLocked()
}

func (k *renewer) nameLocked() string { return k.hub.node + "." + strconv.Itoa(k.incarnation) }

// confirmed reports whether the lease has been held continuously since term began. k.mu is held.
func (k *renewer) confirmed(term int) bool { return term == k.term && time.Now().Before(k.until) }

// Times of the renewer.
const (
	reapClaim  = 5 * time.Second      // how long a reaping node has a dead node to itself
	renewSlack = 5 * time.Millisecond // added after a lease has expired by Redis' clock
)

// run renews the lease in time, and checks again when the next lease of any node expires.
func (k *renewer) run() {
	h := k.hub
	renewed, touched := time.Now(), time.Now()
	var delays backoff
	for h.ctx.Err() == nil {
		if time.Since(touched) > h.cfg.HistoryTime/4 {
			touched = time.Now()
			h.report(inRedis("extend the life of histories", k.touch(h.ctx)))
		}
		expires, err := k.renew(h.ctx)
		wait, wake := min(h.cfg.Lease/3, h.cfg.HistoryTime/4, expires+renewSlack), k.wake
		if err == nil {
			renewed = time.Now()
			delays = 0
		} else {
			wait, wake = min(delays.next(), h.cfg.Lease/6), nil // requests for it wait, too
			if time.Since(renewed) > h.cfg.Lease {
				h.report(inRedis("renew the lease of this process", err))
			}
		}
		select {
		case <-h.ctx.Done():
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// touch extends the expiry of the streams of rooms that have members here.
func (k *renewer) touch(ctx context.Context) error {
	pipe := k.hub.client.Pipeline()
	for _, r := range k.hub.all() {
		if r.kind == orderedRoom {
			pipe.PExpire(ctx, r.key, k.hub.cfg.HistoryTime)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// renew renews the lease and acts on the answer. It returns the time until the next lease of any
// node expires. If the node was declared dead, or Redis has forgotten it, it begins a new
// incarnation, which has no lease yet.
func (k *renewer) renew(ctx context.Context) (time.Duration, error) {
	h := k.hub
	k.mu.Lock()
	node, leased, ever := k.nameLocked(), !k.until.IsZero(), !k.until.IsZero() || k.incarnation > 0
	k.mu.Unlock()
	began := time.Now()
	keys := []string{h.keys.nodes(), h.keys.reaping(), h.keys.counts(), h.keys.mark(), h.keys.loss()}
	answer, err := leaseScript.Run(ctx, h.client, keys,
		node, h.cfg.Lease.Milliseconds(), leased, reapClaim.Milliseconds(), ever).Slice()
	if err != nil {
		return 0, err
	}
	if len(answer) != 5 {
		return 0, errAnswer
	}
	lives, _ := answer[0].(int64)
	expires, _ := answer[1].(int64)
	dead, _ := answer[2].(string)
	names, _ := answer[3].(int64)
	now, _ := answer[4].(int64)
	k.mu.Lock()
	by := k.clock.Step(time.Duration(now)*time.Millisecond, began.Sub(h.began), time.Since(h.began))
	k.mu.Unlock()
	if by.Abs() > h.cfg.Lease/2 {
		h.report(fmt.Errorf("%w, by about %v: users and names of this process may have been taken for those of a dead one",
			ErrClock, by.Round(time.Second)))
	}
	if lives == 0 {
		k.rejoin(node)
		return 0, nil
	}
	if k.leasedSince(began, node, int(names)) {
		for _, r := range h.all() {
			h.republishPresence(r.place)
		}
	}
	if dead != "" && k.reaping.CompareAndSwap(false, true) { // otherwise another node does, after reapClaim
		h.wg.Go(func() {
			h.report(inRedis("remove what a dead process has left", k.reap(ctx, dead)))
			k.reaping.Store(false)
			signal(k.wake) // there may be more
		})
	}
	return time.Duration(expires) * time.Millisecond, nil
}

// leasedSince records that node has a lease, and lists the names in Redis if their number differs.
// It reports whether presence must be sent to Redis again, because the incarnation is new.
func (k *renewer) leasedSince(began time.Time, node string, names int) (untold bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if node != k.nameLocked() { // it has been declared dead meanwhile
		return false
	}
	untold = k.until.IsZero() && k.incarnation > 0
	if !k.until.IsZero() && began.After(k.until) {
		k.term++
		k.dirty = true
	}
	k.until = began.Add(k.hub.cfg.Lease - time.Millisecond) // Redis counts whole milliseconds
	if k.dirty || names != len(k.held) {
		k.dirty = false
		k.post(claimRequest{op: "list"})
	}
	return untold
}

// rejoin ends an incarnation and begins another. Once there is a lease, the state of this node is
// sent again, under another name. A Hub that is closing has declared itself dead.
func (k *renewer) rejoin(dead string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if dead != k.nameLocked() || k.hub.closed.Load() {
		return
	}
	k.incarnation++
	k.term++
	k.dirty, k.until = true, time.Time{}
	signal(k.wake)
	k.hub.cfg.Logger.Warn().
		Msg("redisgroup: this process was declared dead, or Redis has forgotten it; registering its users and names again")
}

// reap removes the state of a dead node, bucket by bucket. It sets a tombstone first, after which
// nothing can be added to that state.
func (k *renewer) reap(ctx context.Context, dead string) error {
	h := k.hub
	for bucket := range h.keys.buckets {
		client, err := h.master(bucket)
		if err != nil {
			return err
		}
		pipe := client.Pipeline()
		pipe.Set(ctx, h.keys.tombstone(bucket, dead), 1, time.Hour)
		rooms := pipe.SMembers(ctx, h.keys.joined(bucket, dead))
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		for _, room := range rooms.Val() {
			if err := k.reapRoom(ctx, dead, room); err != nil {
				return err
			}
		}
	}
	return forgetScript.Run(ctx, h.client, []string{
		h.keys.claims(), h.keys.nodes(), h.keys.claimed(dead), h.keys.counts(), h.keys.reaping(),
	}, dead).Err()
}

// reapUsers is how many users of a room one script removes.
const reapUsers = 200

func (k *renewer) reapRoom(ctx context.Context, dead, room string) error {
	h := k.hub
	at := h.keys.place(orderedRoom, room)
	joined := h.keys.joined(at.bucket, dead)
	keys := []string{h.keys.members(at, dead), h.keys.users(at), at.key, joined}
	for {
		from := h.node + ":" + strconv.FormatUint(h.seq.Add(1), 10)
		args := append(h.streamArgs(), room, from, reapUsers)
		left, err := reapScript.Run(ctx, h.client, keys, args...).Int()
		if err != nil || left == 0 {
			return err
		}
	}
}

// leaveCluster gives up all state of this node.
func (k *renewer) leaveCluster(ctx context.Context) error {
	k.mu.Lock()
	node, leased := k.nameLocked(), !k.until.IsZero()
	k.mu.Unlock()
	if !leased {
		return nil
	}
	return k.reap(ctx, node)
}
