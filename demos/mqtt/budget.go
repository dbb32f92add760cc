package main

import (
	"maps"
	"sync/atomic"
)

// What things take on the heap, in bytes, a little more rather than less. Their texts and payloads
// come on top of it.
const (
	sessionCost      = 1000 // with its maps, its owner and its timers
	subscriptionCost = 300  // with its places in maps, and a member of a group
	groupCost        = 250
	levelCost        = 180 // a level of a tree
	mapCost          = 270 // of the levels below it
	messageCost      = 200
	outgoingCost     = 150 // a message's place in a queue, or among those that are under way
	receivedCost     = 40  // the identifier of a message of QoS 2 without PUBREL
	aliasCost        = 100
)

// shrink returns m, which had up to peak entries, and its new peak. It copies m if a small part is
// left: a map of Go keeps its memory otherwise.
func shrink[K comparable, V any](m map[K]V, peak int) (map[K]V, int) {
	n := len(m)
	if n >= peak/4 {
		return m, peak
	}
	fewer := make(map[K]V, n)
	maps.Copy(fewer, m)
	return fewer, n
}

// budget is one shard's part in counting what all shards keep for clients: Config.MaxMemory. Counts
// go to the sum that shards share when they are worth it, so that loops do not fight for it.
type budget struct {
	limit int64
	sum   *atomic.Int64
	own   int64 // not in sum yet
}

const ownMost = 32 << 10

func (b *budget) add(n int) {
	if b.own += int64(n); b.own > ownMost || b.own < -ownMost {
		b.sum.Add(b.own)
		b.own = 0
	}
}

func (b *budget) used() int64 { return b.sum.Load() + b.own }

// exhausted reports whether nothing more may be kept.
func (b *budget) exhausted() bool { return b.used() >= b.limit }

// full reports whether nothing may be kept that stays without being sent, such as a message for a
// client that is away. The last quarter is for messages to connected clients: otherwise clients that
// only hoard would stop those that are served.
func (b *budget) full() bool { return b.used() >= b.limit/4*3 }

// charge counts what a session itself takes, as long as it lives.
func (s *session) charge(b *budget, n int) {
	s.cost += n
	b.add(n)
}

// costOfAlias returns what an alias of topic takes. An alias that was never set has no topic.
func costOfAlias(topic string) int {
	if topic == "" {
		return 0
	}
	return aliasCost + len(topic)
}

func (w *will) cost() int {
	if w == nil {
		return 0
	}
	return messageCost + len(w.w.Topic) + len(w.w.Payload) + len(w.w.Properties)
}

// cost is what a message takes, however many keep it.
func (m *message) cost() int {
	return messageCost + len(m.topic) + len(m.payload) + len(m.props) + len(m.from)
}

// keep counts a message once for all that keep it, on any loop.
func (m *message) keep(b *budget) {
	if m.keepers.Add(1) == 1 {
		b.add(m.cost())
	}
}

func (m *message) drop(b *budget) {
	if m.keepers.Add(-1) == 0 {
		b.add(-m.cost())
	}
}

func (out *outgoing) cost() int { return outgoingCost + 4*cap(out.ids) }

// keep counts a message that a session's queue, or what is under way, gets.
func (out *outgoing) keep(b *budget) {
	b.add(out.cost())
	if out.m != nil {
		out.m.keep(b)
	}
}

func (out *outgoing) drop(b *budget) {
	b.add(-out.cost())
	if out.m != nil {
		out.m.drop(b)
	}
}
