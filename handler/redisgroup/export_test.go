package redisgroup

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Die ends h as a crash would: nothing is given up.
func Die(h *Hub) { h.stop(context.Background()) }

// DeclareDead does what another does when h's lease has run out.
func DeclareDead(ctx context.Context, h *Hub) {
	node := h.keeper.name()
	pipe := h.servers.client.TxPipeline()
	pipe.ZRem(ctx, h.keys.nodes(), node)
	pipe.ZAdd(ctx, h.keys.reaping(), redis.Z{Score: 1, Member: node})
	if _, err := pipe.Exec(ctx); err != nil {
		panic(err)
	}
}

// Reaped reports whether no dead node is left to be reaped, and h has a life after the first.
func Reaped(ctx context.Context, h *Hub) bool {
	n, err := h.servers.client.ZCard(ctx, h.keys.reaping()).Result()
	return err == nil && n == 0 && h.keeper.name() != h.node+".0"
}

// StreamOf returns the key of an ordered room.
func StreamOf(h *Hub, room string) string { return h.keys.place(orderedRoom, room).key }

// Live returns how many ordered rooms have a subscription and miss nothing.
func Live(h *Hub) (n int) {
	for _, r := range h.all() {
		if r.live() {
			n++
		}
	}
	return n
}

// Unclear returns how many messages wait to be tried again that Redis may have taken.
func Unclear(h *Hub) (n int) {
	for _, l := range h.servers.all() {
		l.out.mu.Lock()
		for _, o := range l.out.queue {
			if o.unclear {
				n++
			}
		}
		l.out.mu.Unlock()
	}
	return n
}

// Together has what f publishes go out in one batch, of a Hub on one server.
func Together(h *Hub, f func()) {
	l := h.servers.link(0)
	l.sending.Lock()
	defer l.sending.Unlock()
	f()
}

// Held reports whether h has a lease.
func Held(h *Hub) bool {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	return h.keeper.leased
}

// Claimed returns for whom h would claim a name again, or "".
func Claimed(h *Hub, name string) string {
	h.keeper.mu.Lock()
	defer h.keeper.mu.Unlock()
	if ho := h.keeper.held[name]; ho != nil {
		return ho.owner
	}
	return ""
}

// Unsettled reports whether h has questions about names under way, or does not know what Redis has.
func Unsettled(h *Hub) bool {
	k := &h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dirty || len(k.returns) > 0 || len(k.asking) > 0
}

// ClaimsOf returns the key of all names that are claimed.
func ClaimsOf(h *Hub) string { return h.keys.claims() }

// Excepts returns how many messages are noted that are not for all.
func Excepts(h *Hub) (n int) {
	for _, r := range h.all() {
		r.mu.Lock()
		n += len(r.excepts)
		r.mu.Unlock()
	}
	return n
}

// Joining returns how many connections are joining ordered rooms.
func Joining(h *Hub) (n int) {
	for _, r := range h.all() {
		r.mu.Lock()
		n += len(r.order.joins)
		r.mu.Unlock()
	}
	return n
}

// SlotMoved does what a cluster does that moves the slot of a plain room away.
func SlotMoved(h *Hub, room string) {
	p := h.keys.place(plainRoom, room)
	_ = h.servers.link(p.bucket).subs.answered("sunsubscribe", p.channel)
}

// MovedFor is for how long a room whose slot has moved is not subscribed to again.
const MovedFor = 2 * reloadWait

// Subscriptions returns how many channels are subscribed to, or are to be.
func Subscriptions(h *Hub) (n int) {
	for _, l := range h.servers.all() {
		l.subs.mu.Lock()
		n += len(l.subs.subs)
		l.subs.mu.Unlock()
	}
	return n
}

// Timers returns how much h has to do later.
func Timers(h *Hub) int { return h.timers.Len() }
