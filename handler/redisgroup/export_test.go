package redisgroup

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Die ends h as a crash would: nothing is given up.
func Die(h *Hub) {
	h.closed.Store(true)
	h.stop(context.Background())
}

// DeclareDead does what another does when h's lease has run out.
func DeclareDead(ctx context.Context, h *Hub) {
	node := h.renewer.name()
	pipe := h.client.TxPipeline()
	pipe.ZRem(ctx, h.keys.nodes(), node)
	pipe.ZAdd(ctx, h.keys.reaping(), redis.Z{Score: 1, Member: node})
	if _, err := pipe.Exec(ctx); err != nil {
		panic(err)
	}
}

// Reaped reports whether no dead node is left to be reaped, and h has a life after the first.
func Reaped(ctx context.Context, h *Hub) bool {
	n, err := h.client.ZCard(ctx, h.keys.reaping()).Result()
	return err == nil && n == 0 && h.renewer.name() != h.node+".0"
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
	for _, l := range h.publishSenders {
		l.mu.Lock()
		for _, o := range l.items {
			if o.unclear {
				n++
			}
		}
		l.mu.Unlock()
	}
	return n
}

// Flying reports whether h has messages in flight.
func Flying(h *Hub) bool {
	for _, l := range h.publishSenders {
		l.mu.Lock()
		n := len(l.batch)
		l.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// Held reports whether h has a lease.
func Held(h *Hub) bool {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	return !h.renewer.until.IsZero()
}

// Claimed returns for whom h would claim a name again, or "".
func Claimed(h *Hub, name string) string {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	if ho := h.renewer.held[name]; ho != nil {
		return ho.owner
	}
	return ""
}

// Unsettled reports whether h has questions about names under way, or does not know what Redis has.
func Unsettled(h *Hub) bool {
	h.renewer.mu.Lock() // so nothing is asked or answered meanwhile
	defer h.renewer.mu.Unlock()
	return h.renewer.dirty || h.querySenders[h.keys.buckets].len() > 0
}

// ClaimsOf returns the key of all names that are claimed.
func ClaimsOf(h *Hub) string { return h.keys.claims() }

// Excepts returns how many messages are noted that are not for all.
func Excepts(h *Hub) int { return h.skipSenders.Len() }

// Joining returns how many connections are joining ordered rooms.
func Joining(h *Hub) (n int) {
	for _, r := range h.all() {
		r.mu.Lock()
		n += len(r.order.joins)
		r.mu.Unlock()
	}
	return n
}

// SlotMoved has Redis end the subscription of a plain room unasked, as a cluster does that moves
// its slot away.
func SlotMoved(ctx context.Context, h *Hub, room string) error {
	p := h.keys.place(plainRoom, room)
	l := h.subscribers[p.bucket]
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.cluster != nil {
		return l.sub.SUnsubscribe(ctx, p.channel)
	}
	return l.sub.Unsubscribe(ctx, p.channel)
}

// Subscriptions returns how many channels are subscribed to, or may have to be.
func Subscriptions(h *Hub) (n int) {
	for _, l := range h.subscribers {
		l.mu.Lock()
		n += len(l.requested)
		for channel := range l.touched {
			if l.requested[channel] == nil {
				n++
			}
		}
		l.mu.Unlock()
	}
	return n
}

// ClaimsHeld returns how many claims h remembers for connections.
func ClaimsHeld(h *Hub) (n int) {
	h.renewer.mu.Lock()
	defer h.renewer.mu.Unlock()
	for _, ho := range h.renewer.held {
		n += len(ho.by)
	}
	return n
}

// Republish sends a message to a room as one that another server may have taken, and returns what
// became of it.
func Republish(ctx context.Context, h *Hub, room string) (string, error) {
	p := h.keys.place(orderedRoom, room)
	args := append(append([]any{2, 1}, h.streamArgs()...), "", h.node, receiptTime.Milliseconds(), "message", "another 1", "x "+h.node+":1 m\nhello")
	answers, err := publishScript.Run(ctx, h.client, []string{h.keys.receipt(p.bucket, h.node), p.key}, args...).StringSlice()
	if err != nil {
		return "", err
	}
	return answers[0], nil
}
