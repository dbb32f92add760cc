package redisgroup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing"
)

// nodeLen is the length of a node ID.
const nodeLen = 12

// A Hub connects this process to all others that have a Hub with the same Config.Prefix on the same
// Redis. Any goroutine may call its methods, except those with a *loop.Conn, which belong on that
// connection's loop. Only methods that take a context wait for Redis. A connection that has used
// the Hub stays on its loop: Conn.MoveTo returns an error.
type Hub struct {
	cfg     Config
	keys    keys
	node    string // the ID of this Hub as a publisher
	began   time.Time
	client  redis.UniversalClient // the user's
	cluster *redis.ClusterClient  // the same, if it is a cluster
	command string                // for publishing; in a cluster, PUBLISH would go to all masters
	timers  *timing.Scheduler
	renewer *renewer
	members *loop.Local[memberships]

	publishSenders, querySenders []*sender     // by bucket
	subscribers                  []*subscriber // by bucket
	load                         atomic.Int64  // bytes queued for Redis

	seq atomic.Uint64 // counts published messages

	skipSenders *timing.Keyed[uint64, loop.Ref] // the members that skip a message of this Hub, by its number

	presentMu sync.Mutex                      // locked after a room's lock
	present   map[string]map[string]*presence // by channel and user

	statsMu    sync.Mutex
	stats      Stats
	errorLimit *zerolog.BurstSampler // limits how many errors are reported

	mu     sync.RWMutex
	rooms  map[string]*room // by channel: rooms with members, or with some until recently
	closed atomic.Bool

	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup // senders

	lingering atomic.Int64 // connections that have recently moved to another process
	wg        sync.WaitGroup
}

// Open returns a Hub on a Redis server, the master of a Sentinel, or a Redis Cluster. The Hub uses
// the client without changes. In a cluster it uses the clients of the masters, which get their
// hooks through OnNewNode. Do not close the client before the Hub. The Hub needs Redis 6.2 or
// Valkey; in a cluster it needs Redis 7.
//
// Open fails if it cannot reach Redis or the client is of the wrong kind for the server, unless
// Config.Lazy is set. It logs a warning to Config.Logger if Redis would evict rooms when its memory
// is full, and it reports ErrMute.
func Open(ctx context.Context, client redis.UniversalClient, cfg Config) (*Hub, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, node: rand.Text()[:nodeLen], began: time.Now(), errorLimit: &zerolog.BurstSampler{Burst: 5, Period: time.Second}}
	h.rooms, h.present = make(map[string]*room), make(map[string]map[string]*presence)
	h.members = loop.NewLocal(func(*loop.Loop) memberships { return make(memberships) })
	h.renewer = &renewer{hub: h, wake: make(chan struct{}, 1), held: make(map[string]*nameLease)}
	if err := h.use(client); err != nil {
		return nil, err
	}
	if err := h.check(ctx); err != nil {
		if !cfg.Lazy {
			return nil, fmt.Errorf("redisgroup: Redis cannot be reached, or is not suitable (to open all the same, set Config.Lazy): %w", err)
		}
		h.cfg.Logger.Warn().Err(err).Msg("redisgroup: Redis cannot be reached, or is not suitable; retrying")
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.timers = timing.NewScheduler(timing.SchedulerConfig{})
	h.skipSenders = timing.NewKeyed[uint64, loop.Ref](timing.KeyedConfig{Tick: 100 * time.Millisecond}, nil)
	h.publishSenders, h.querySenders, h.subscribers = newSenders(h), newSenders(h), newSubscribers(h)
	h.wg.Go(h.renewer.run)
	return h, nil
}

// pause sleeps, or returns early if the Hub is closed.
func (h *Hub) pause(d time.Duration) {
	select {
	case <-h.ctx.Done():
	case <-time.After(d):
	}
}

// Close shuts down the Hub. Until ctx is done, it publishes the queued messages and releases
// presence and names. It waits a second before it releases those of connections that a handover has
// moved, because the next process has them by then. All other messages are lost with ErrClosed or
// ErrUncertain; connections that are joining get ErrClosed. Close does not close connections; they
// remain members. The error is ctx's if not everything was published and released in time, or that
// of Redis. Further calls do nothing.
func (h *Hub) Close(ctx context.Context) error {
	for h.lingering.Load() > 0 && !h.closed.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if h.closed.Swap(true) {
		return nil
	}
	for h.queued() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	err := onredis.Await(ctx, func() error { return h.renewer.leaveCluster(ctx) })
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	h.stop(ctx)
	if err = h.explain(err); err != nil {
		return fmt.Errorf("redisgroup: Hub.Close: users and names of this process may stay in Redis for Config.Lease: %w", err)
	}
	return nil
}

// stop ends all goroutines of the Hub. When ctx is done, it abandons requests that Redis has not
// answered; they return after the client's timeouts and have no effect on the Hub.
func (h *Hub) stop(ctx context.Context) {
	h.cancel()
	h.timers.Stop()
	h.skipSenders.Stop()
	for _, l := range slices.Concat(h.publishSenders, h.querySenders) {
		_ = l.len() // waits for current calls of add; later ones start no goroutine
	}
	h.sending.Wait() // senders do not wait for Redis now
	_ = onredis.Await(ctx, func() error { h.wg.Wait(); return nil })
	for _, r := range h.all() {
		r.refuseAll(ErrClosed)
	}
}

// publish queues a message or a change of presence.
func (h *Hub) publish(o *request) error {
	err := h.publishSenders[o.bucket].add(o)
	if err == ErrQueueFull && o.isMessage() {
		h.count(&h.stats.Refused)
	}
	return err
}

// queued returns the number of publishing requests that are queued or in flight.
func (h *Hub) queued() (n int) {
	for _, l := range h.publishSenders {
		n += l.len()
	}
	return n
}

// after calls f after d, unless the Hub has been closed.
func (h *Hub) after(d time.Duration, f func()) { h.timers.AfterFunc(d, f) }

// Group returns the plain room with this name. A Group is only a handle: it costs nothing in Redis.
// If the name is empty or longer than MaxName, the error is a *SizeError.
func (h *Hub) Group(name string) (*Group, error) {
	if err := checkName("room name", name); err != nil {
		return nil, err
	}
	return &Group{handle{h, h.keys.place(plainRoom, name)}}, nil
}

// Ordered returns the ordered room with this name. It is unrelated to the plain room of the same
// name. An Ordered is a handle, and the errors are those of Group.
func (h *Hub) Ordered(name string) (*Ordered, error) {
	if err := checkName("room name", name); err != nil {
		return nil, err
	}
	return &Ordered{handle{h, h.keys.place(orderedRoom, name)}}, nil
}

// acquire returns the room at p and keeps it until release. It returns nil if the Hub is closed.
func (h *Hub) acquire(p place) *room {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Load() {
		return nil
	}
	r := h.rooms[p.channel]
	if r == nil {
		r = &room{hub: h, place: p}
		h.rooms[p.channel] = r
		if p.kind != orderedRoom {
			r.local = handler.NewGroup(handler.GroupConfig{Backlog: h.cfg.Backlog})
		} else {
			r.local = handler.NewGroup(handler.GroupConfig{})
			_ = h.publish(&request{place: p, op: opPeek, room: r}) // fails if the Hub is closed
		}
		h.subscribers[r.bucket].touch(r.channel, true)
	}
	r.holders++
	return r
}

// release undoes an acquire. The room is removed if nobody has acquired it again.
func (h *Hub) release(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.holders--; r.holders == 0 {
		_ = h.timers.Set("forget "+r.channel, h.cfg.Linger, func() { h.forget(r) })
	}
}

func (h *Hub) forget(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.holders > 0 || h.rooms[r.channel] != r {
		return
	}
	delete(h.rooms, r.channel)
	r.forgotten.Store(true)
	h.subscribers[r.bucket].touch(r.channel, false)
}

// find returns the room with that channel, or nil.
func (h *Hub) find(channel string) *room {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.rooms[channel]
}

// all returns the rooms.
func (h *Hub) all() []*room {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.Collect(maps.Values(h.rooms))
}

// receive processes a message from Redis.
func (h *Hub) receive(channel, payload string) {
	h.count(&h.stats.Received)
	switch r := h.find(channel); {
	case r == nil: // unsubscribing
	case r.kind == orderedRoom:
		id, text, _ := strings.Cut(payload, " ") // see append.lua
		if e, ok := parseEntry(r.name, id, text); ok {
			e.msg = h.form(e)
			r.take(e)
		}
	default:
		r.takePlain([]byte(payload))
	}
}

// Stats holds the counters of a Hub.
type Stats struct {
	Rooms     int    // with members in this process, or with some until recently; includes users
	Queued    int    // messages and changes of presence that are queued for Redis or in flight to it
	Published uint64 // messages that Redis accepted
	Lost      uint64 // messages that Redis did not accept, or may not have
	Refused   uint64 // messages that were not queued, because of ErrQueueFull
	Received  uint64 // messages from Redis
	CaughtUp  uint64 // entries that were read because they had been missed
	Gaps      uint64 // gaps that were reported to members
	Connects  uint64 // connections that were made for subscriptions
}

// Stats returns the Hub's counters.
func (h *Hub) Stats() Stats {
	queued := h.queued()
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.statsMu.Lock()
	defer h.statsMu.Unlock()
	s := h.stats
	s.Rooms, s.Queued = len(h.rooms), queued
	return s
}

// count increments a field of h.stats.
func (h *Hub) count(field *uint64) {
	h.statsMu.Lock()
	*field++
	h.statsMu.Unlock()
}

// report reports an error that has no caller, unless there are too many at present.
func (h *Hub) report(err error) {
	err = h.explain(err)
	switch {
	case err == nil, errors.Is(err, context.Canceled), !h.errorLimit.Sample(zerolog.WarnLevel):
	case h.cfg.OnError != nil:
		h.cfg.OnError(err)
	default:
		h.cfg.Logger.Error().Err(err).Msg("redisgroup: background work failed")
	}
}

// A room is the state of a room in a process that has members in it.
type room struct {
	hub *Hub
	place
	local   *handler.Group
	holders int // members and joining connections; guarded by hub.mu

	forgotten atomic.Bool // another room may use its channel

	mu    sync.Mutex
	order order
}
