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

// A renewer keeps the lease of this node, and looks after nodes that have died: their users leave
// the rooms they were in. A node that was declared dead and is not comes back under another name.
type renewer struct {
	hub     *Hub
	wake    chan struct{} // has a token when the lease is to be renewed at once
	reaping atomic.Bool   // a dead node

	mu          sync.Mutex
	clock       onredis.Clock
	incarnation int
	until       time.Time // when the lease ends at the earliest; zero: this incarnation had none
	term        int       // how often it may have run out: what was ours before may be another's

	held   map[string]*nameLease // names that are ours
	dirty  bool                  // Redis may have other names than we do
	newest uint64                // the newest token that was seen
}

// name is that of this node in this incarnation.
func (k *renewer) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nameLocked()
}

func (k *renewer) nameLocked() string { return k.hub.node + "." + strconv.Itoa(k.incarnation) }

// confirmed reports whether there was a lease ever since a term began. k.mu is held.
func (k *renewer) confirmed(term int) bool { return term == k.term && time.Now().Before(k.until) }

// Times of the renewer.
const (
	reapClaim  = 5 * time.Second      // for how long one that reaps has a node to itself
	renewSlack = 5 * time.Millisecond // after a lease has run out, by Redis' clock
)

// run renews the lease when that is due, and looks again when the next lease of anybody runs out.
func (k *renewer) run() {
	h := k.hub
	renewed, touched := time.Now(), time.Now()
	var delays backoff
	for h.ctx.Err() == nil {
		if time.Since(touched) > h.cfg.HistoryTime/4 {
			touched = time.Now()
			h.report(k.touch(h.ctx))
		}
		expires, err := k.renew(h.ctx)
		wait, wake := min(h.cfg.Lease/3, h.cfg.HistoryTime/4, expires+renewSlack), k.wake
		if err == nil {
			renewed = time.Now()
			delays = 0
		} else {
			wait, wake = min(delays.next(), h.cfg.Lease/6), nil // those who ask for it now wait, too
			if time.Since(renewed) > h.cfg.Lease {
				h.report(err)
			}
		}
		select {
		case <-h.ctx.Done():
		case <-wake:
		case <-time.After(wait):
		}
	}
}

// touch keeps the streams of rooms that have members here.
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

// renew renews the lease, and does what the answer asks for. It returns when the next lease of
// anybody runs out. If the node was declared dead, or Redis has forgotten it, it begins another
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
	if by := k.clock.Step(time.Duration(now)*time.Millisecond, began.Sub(h.began), time.Since(h.began)); by.Abs() > h.cfg.Lease/2 {
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
	if dead != "" && k.reaping.CompareAndSwap(false, true) { // or another does, after reapClaim
		h.wg.Go(func() {
			h.report(k.reap(ctx, dead))
			k.reaping.Store(false)
			signal(k.wake) // there may be more
		})
	}
	return time.Duration(expires) * time.Millisecond, nil
}

// leasedSince notes that node has a lease, and asks for the names that Redis has if their number is
// another. It reports whether Redis needs to know again who is here: the incarnation is a new one.
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
	k.until = began.Add(k.hub.cfg.Lease - time.Millisecond) // Redis counts whole ones
	if k.dirty || names != len(k.held) {
		k.dirty = false
		k.post(claimRequest{op: "list"})
	}
	return untold
}

// rejoin ends an incarnation and begins another: all that this node has is sent anew, under another
// name, once there is a lease. A Hub that is being closed has declared itself dead.
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
		Msg("redisgroup: this node was declared dead or forgotten; registering members again")
}

// reap removes what a dead node had, bucket by bucket: a tombstone first, after which nothing of it
// can be added.
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

// leaveCluster gives up all that this node has.
func (k *renewer) leaveCluster(ctx context.Context) error {
	k.mu.Lock()
	node, leased := k.nameLocked(), !k.until.IsZero()
	k.mu.Unlock()
	if !leased {
		return nil
	}
	return k.reap(ctx, node)
}
