package redisgroup

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A link is what a Hub has of one Redis server: a queue of what is to be published, a connection
// for subscriptions, and what reads the past. Each is a goroutine or two, however many rooms there
// are.
type link struct {
	hub    *Hub
	addr   string
	client *redis.Client // nil: nowhere

	out    outbox
	in     feed
	past   catcher
	joins  joiner
	delays backoff // of the publisher

	sending sync.Mutex // held while a batch is on its way
}

func newLink(h *Hub, addr string, client *redis.Client) *link {
	l := &link{hub: h, addr: addr, client: client}
	l.out.init(h.cfg.MaxQueue)
	l.in.init(l)
	l.past.init(l)
	l.joins.init(l)
	return l
}

func (l *link) start() {
	l.hub.spawn(l.publishAll)
	l.hub.spawn(l.past.run)
	l.hub.spawn(l.joins.run)
	if l.client != nil {
		l.hub.spawn(l.in.run)
	}
}

// A backoff is how long to wait before the next try: longer each time, and spread.
type backoff struct{ tries int }

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

func (b *backoff) next() time.Duration {
	d := min(maxBackoff, minBackoff<<min(b.tries, 10))
	b.tries++
	return d/2 + rand.N(d)
}

func (b *backoff) reset() { b.tries = 0 }
