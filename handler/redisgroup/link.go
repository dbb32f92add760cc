package redisgroup

import (
	"errors"
	"math/rand/v2"
	"regexp"
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
	server  string     // its identity, as of the last batch; guarded by sending
	alone   loners     // guarded by sending
}

func newLink(h *Hub, addr string, client *redis.Client) *link {
	l := &link{hub: h, addr: addr, client: client}
	l.out.init(h.cfg.MaxQueue)
	l.in.init(l)
	l.past.init(l)
	l.joins.init(l)
	return l
}

var replicationID = regexp.MustCompile(`master_replid:([0-9a-f]{12})`)

// identify asks for the server's identity, as append.lua has it, before anything is sent to it. l.sending
// is held.
func (l *link) identify() error {
	info, err := l.client.Info(l.hub.ctx, "replication").Result()
	var refused redis.Error
	switch m := replicationID.FindStringSubmatch(info); {
	case errors.As(err, &refused):
		l.server = "-"
	case err != nil:
		return err
	case m == nil:
		l.server = "-"
	default:
		l.server = m[1]
	}
	return nil
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
