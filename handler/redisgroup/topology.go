package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redisopt"
)

// A topology knows which Redis server has which bucket, and keeps a link to each.
type topology struct {
	hub     *Hub
	client  redis.UniversalClient // of our own
	cluster *redis.ClusterClient  // the same, if it is a cluster
	probed  atomic.Bool           // it is known whether
	sharded atomic.Bool           // the server has SPUBLISH

	mu      sync.RWMutex
	links   map[string]*link // by address
	buckets []*link
	wake    chan struct{} // asks for the buckets to be looked at

	receipts []time.Time // by bucket: when there was one; guarded by sending of the bucket's link
}

// newTopology makes a client of our own: one that never sends anything twice by itself, as a
// message would be published twice.
func newTopology(h *Hub, client redis.UniversalClient) (*topology, error) {
	t := &topology{hub: h, links: make(map[string]*link), wake: make(chan struct{}, 1)}
	switch c := client.(type) {
	case *redis.Client:
		t.client = redis.NewClient(quiet(c.Options()))
	case *redis.ClusterClient:
		opt := redisopt.CopyCluster(c.Options())
		opt.MaxRetries = -1
		opt.ContextTimeoutEnabled = true
		t.cluster = redis.NewClusterClient(opt)
		t.client = t.cluster
		h.keys.buckets = clusterBuckets
	default:
		return nil, fmt.Errorf("redisgroup: a client of type %T; want *redis.Client or *redis.ClusterClient", client)
	}
	t.buckets, t.receipts = make([]*link, h.keys.buckets), make([]time.Time, h.keys.buckets)
	return t, nil
}

// quiet returns options for a client that does not send anything twice, and waits for no longer than
// a context allows.
func quiet(opt *redis.Options) *redis.Options {
	o := redisopt.Copy(opt)
	o.MaxRetries = -1
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	return o
}

// start looks whether Redis is there, and begins to work also if it is not.
func (t *topology) start(ctx context.Context) error {
	err := t.client.Ping(ctx).Err()
	if err == nil {
		err = t.ready(ctx)
	}
	t.assign()
	if t.cluster != nil {
		t.hub.spawn(t.watch)
	}
	return err
}

// ready returns nil when it is known how to publish. All Hubs must do it in the same way: so
// nothing is published, and nothing subscribed to, before.
func (t *topology) ready(ctx context.Context) error {
	if t.probed.Load() {
		return nil
	}
	return t.probe(ctx)
}

// probe asks whether the server has sharded pub/sub, which a cluster must have: without it each
// message goes to all masters.
func (t *topology) probe(ctx context.Context) error {
	info, err := t.client.Do(ctx, "COMMAND", "INFO", "spublish").Slice()
	var answered redis.Error
	if err != nil && !errors.As(err, &answered) {
		return err
	}
	t.sharded.Store(err == nil && len(info) == 1 && info[0] != nil)
	if t.cluster != nil && !t.sharded.Load() {
		return errors.New("this Redis Cluster has no sharded pub/sub: it needs Redis 7 or Valkey")
	}
	if t.probed.CompareAndSwap(false, true) {
		t.warnOfEviction(ctx)
	}
	return nil
}

// assign gives each bucket to the link of the server that has it. What waits for a bucket that
// moves goes along, and its subscriptions are made anew there.
func (t *topology) assign() {
	moves := make(map[*link]map[int]*link)
	for b := range t.buckets {
		client, addr := t.master(b)
		now, old := t.linkTo(addr, client), t.link(b)
		if now == old {
			continue
		}
		if moves[old] == nil {
			moves[old] = make(map[int]*link)
		}
		moves[old][b] = now
	}
	for old, buckets := range moves {
		t.move(old, buckets)
		for b := range buckets {
			for _, r := range t.hub.inBucket(b) {
				t.hub.ifThere(r, func() { t.resubscribe(r) })
			}
		}
	}
}

// linkTo returns the link to a server, and makes it if there is none.
func (t *topology) linkTo(addr string, client *redis.Client) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[addr]
	if l == nil {
		l = newLink(t.hub, addr, client)
		t.links[addr] = l
		l.start()
	}
	return l
}

// move gives buckets to other links, with what waits for them, so that it keeps its order. It waits
// until old has nothing on its way. old is nil at the start.
func (t *topology) move(old *link, buckets map[int]*link) {
	if old != nil {
		old.sending.Lock()
		defer old.sending.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for b, l := range buckets {
		t.buckets[b] = l
	}
	if old == nil {
		return
	}
	waiting := make(map[*link][]*outgoing)
	for _, o := range old.out.extract(func(o *outgoing) bool { return buckets[o.bucket] != nil }) {
		l := buckets[o.bucket]
		waiting[l] = append(waiting[l], o)
	}
	for l, all := range waiting {
		l.out.prepend(all)
	}
}

// inBucket returns the rooms of a bucket.
func (h *Hub) inBucket(b int) (rooms []*room) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, r := range h.rooms {
		if r.bucket == b {
			rooms = append(rooms, r)
		}
	}
	return rooms
}

// nowhere is the address of the link for buckets whose server is not known yet. It publishes
// nothing.
const nowhere = ""

// master returns the server that has a bucket. It asks nobody: the cluster's client knows, or does
// not.
func (t *topology) master(bucket int) (*redis.Client, string) {
	if t.cluster == nil {
		c := t.client.(*redis.Client)
		return c, "redis " + c.Options().Addr
	}
	c, err := t.cluster.MasterForKey(t.hub.ctx, t.hub.keys.tag(bucket))
	if err != nil || c == nil {
		return nil, nowhere
	}
	return c, c.Options().Addr
}

// Times of looking at a cluster anew.
const (
	reloadWait  = 100 * time.Millisecond // for the client to have asked
	reloadEvery = 30 * time.Second       // unasked
)

// watch looks at the cluster when somebody asks, and now and then.
func (t *topology) watch() {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-t.hub.ctx.Done():
			return
		case <-t.wake:
		case <-tick.C:
		}
		t.cluster.ReloadState(t.hub.ctx)
		if !t.pause(reloadWait) {
			return
		}
		t.hub.report(t.ready(t.hub.ctx))
		t.assign()
	}
}

// pause waits, and reports false if the Hub was closed meanwhile.
func (t *topology) pause(d time.Duration) bool {
	select {
	case <-t.hub.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// reload asks for a look at the cluster. It does not wait.
func (t *topology) reload() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *topology) link(bucket int) *link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.buckets[bucket]
}

func (t *topology) all() []*link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*link, 0, len(t.links))
	for _, l := range t.links {
		all = append(all, l)
	}
	return all
}

// publish queues o for the server that has it.
func (t *topology) publish(o *outgoing) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	err := t.buckets[o.bucket].out.add(o)
	if errors.Is(err, ErrQueueFull) {
		t.hub.stats.refused.Add(1)
	}
	return err
}

func (t *topology) subscribe(r *room)   { t.link(r.bucket).in.want(r) }
func (t *topology) unsubscribe(r *room) { t.link(r.bucket).in.drop(r) }

// resubscribe moves a subscription to the link that its bucket has now.
func (t *topology) resubscribe(r *room) {
	now := t.link(r.bucket)
	for _, l := range t.all() {
		if l != now {
			l.in.drop(r)
		}
	}
	r.lostSubscription()
	now.in.want(r)
}

// command is the one for publishing; it is in scripts, too.
func (t *topology) command() string {
	if t.sharded.Load() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

func (t *topology) queued() (n int) {
	for _, l := range t.all() {
		n += l.out.len()
	}
	return n
}

// flush waits until all that is queued has been published.
func (t *topology) flush(ctx context.Context) error {
	for t.queued() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (t *topology) close() {
	for _, l := range t.all() {
		l.out.close()
	}
	_ = t.client.Close()
}

// An outcome is what an error of Redis means for what was sent.
type outcome int

const (
	done    outcome = iota
	refused         // it was not taken, and never will be
	later           // it was not taken now
	unclear         // it may have been taken
)

// judge tells what an error means.
func judge(err error) outcome {
	if err == nil {
		return done
	}
	var answered redis.Error
	if errors.As(err, &answered) {
		return judgeAnswer(answered.Error())
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) {
		return later
	}
	return unclear
}

// judgeAnswer tells what an error means that Redis answered with.
func judgeAnswer(text string) outcome {
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	switch word {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "BUSY", "NOREPLICAS":
		return later
	case "Can't": // see apart
		return later
	case "STALE":
		return unclear
	}
	return refused
}

// isMoved reports whether an error says that a bucket has gone elsewhere.
func isMoved(err error) bool {
	if err == nil {
		return false
	}
	for _, word := range []string{"MOVED", "ASK", "CLUSTERDOWN", "READONLY", "MASTERDOWN"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}
