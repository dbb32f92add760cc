package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers knows which Redis server has which bucket, and keeps a link to each.
type servers struct {
	hub     *Hub
	client  redis.UniversalClient // the user's
	cluster *redis.ClusterClient  // the same, if it is a cluster

	mu      sync.RWMutex
	links   map[string]*link // by address
	buckets []*link
	wake    chan struct{} // has a token when the cluster has to be looked at

	receipts []time.Time // by bucket: when there was one; guarded by sending of the bucket's link
}

func newServers(h *Hub, client redis.UniversalClient) (*servers, error) {
	t := &servers{hub: h, client: client, links: make(map[string]*link), wake: make(chan struct{}, 1)}
	switch c := client.(type) {
	case *redis.Client:
		if db := c.Options().DB; db != 0 {
			h.keys.database = strconv.Itoa(db)
		}
	case *redis.ClusterClient:
		t.cluster = c
		h.keys.buckets = clusterBuckets
	default:
		return nil, fmt.Errorf("redisgroup: a client of type %T; want *redis.Client or *redis.ClusterClient", client)
	}
	t.buckets, t.receipts = make([]*link, h.keys.buckets), make([]time.Time, h.keys.buckets)
	return t, nil
}

// await returns what f does, or ctx's error when that ends before. go-redis itself waits for as
// long as the client's timeouts allow, unless it is told otherwise; f goes on then, and its result
// is lost.
func await(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A once is a command that go-redis does not repeat by itself, nor the pipeline that it is in: a
// message would be published twice.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// queueOnce adds a command to pipe.
func queueOnce(ctx context.Context, pipe redis.Pipeliner, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	_ = pipe.Process(ctx, once{cmd}) // it waits for Exec
	return cmd
}

// queueScript adds a call of a script to pipe.
func queueScript(ctx context.Context, pipe redis.Pipeliner, s *redis.Script, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.Hash(), len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	_ = pipe.Process(ctx, once{cmd})
	return cmd
}

// start looks whether Redis is there, and begins to work also if it is not.
func (t *servers) start(ctx context.Context) error {
	err := await(ctx, func() error { return t.look(ctx) })
	t.assign()
	if t.cluster != nil {
		t.hub.wg.Go(t.watch)
	}
	return err
}

// look asks Redis whether it is there, and whether it will do.
func (t *servers) look(ctx context.Context) error {
	if err := t.client.Ping(ctx).Err(); err != nil {
		return err
	}
	if t.cluster != nil {
		info, err := t.client.Do(ctx, "COMMAND", "INFO", "spublish").Slice()
		if err != nil {
			return err
		}
		if len(info) != 1 || info[0] == nil {
			return errors.New("this Redis Cluster has no sharded pub/sub: it needs Redis 7 or Valkey")
		}
	}
	t.warnOfEviction(ctx)
	return nil
}

// assign gives each bucket to the link of the server that has it. What waits for a bucket that
// moves goes along, and its subscriptions are made anew there.
func (t *servers) assign() {
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
		t.retire(old)
	}
}

// retire ends the subscriptions of a link that has no bucket any more: its server has gone, or is a
// replica now.
func (t *servers) retire(old *link) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old == nil || slices.Contains(t.buckets, old) {
		return
	}
	if t.links[old.addr] == old {
		delete(t.links, old.addr)
	}
	old.retired()
}

// linkTo returns the link to a server, and makes it if there is none. A client of the user's
// cluster is closed when its server has been away for a while; one that comes back has another
// client.
func (t *servers) linkTo(addr string, client *redis.Client) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[addr]
	if l == nil || l.client != client {
		l = newLink(t.hub, addr, client)
		t.links[addr] = l
		l.start()
	}
	return l
}

// move gives buckets to other links, with what waits for them, so that it keeps its order. It waits
// until old has nothing on its way. old is nil at the start.
func (t *servers) move(old *link, buckets map[int]*link) {
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
func (t *servers) master(bucket int) (*redis.Client, string) {
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
func (t *servers) watch() {
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
		if !t.hub.pause(reloadWait) {
			return
		}
		t.assign()
	}
}

// reload asks for a look at the cluster. It does not wait.
func (t *servers) reload() {
	signal(t.wake)
}

func (t *servers) link(bucket int) *link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.buckets[bucket]
}

func (t *servers) all() []*link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*link, 0, len(t.links))
	for _, l := range t.links {
		all = append(all, l)
	}
	return all
}

// publish queues o for the server that has it.
func (t *servers) publish(o *outgoing) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	err := t.buckets[o.bucket].out.add(o)
	if errors.Is(err, ErrQueueFull) {
		t.hub.stats.refused.Add(1)
	}
	return err
}

// resubscribe moves a subscription to the link that its bucket has now.
func (t *servers) resubscribe(r *room) {
	now := t.link(r.bucket)
	for _, l := range t.all() {
		if l != now {
			l.subs.drop(r)
		}
	}
	r.lostSubscription()
	now.subs.want(r)
}

// sharded reports whether messages go through sharded pub/sub. Elsewhere in a cluster each goes to
// all masters.
func (t *servers) sharded() bool { return t.cluster != nil }

// command is the one for publishing; it is in scripts, too.
func (t *servers) command() string {
	if t.sharded() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

func (t *servers) queued() (n int) {
	for _, l := range t.all() {
		n += l.out.len()
	}
	return n
}

// flush waits until all that is queued has been published.
func (t *servers) flush(ctx context.Context) error {
	for t.queued() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
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
	if errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return later
	}
	return unclear
}

// judgeAnswer tells what an error means that Redis answered with.
func judgeAnswer(text string) outcome {
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "ERR "), " ")
	switch word {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "NOSCRIPT", "BUSY", "NOREPLICAS", "NOLEASE":
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

// isDenied reports whether Redis says that the user has no right to do that.
func isDenied(err error) bool { return redis.HasErrorPrefix(err, "NOPERM") }

// A link is what a Hub has of one Redis server: a queue of what is to be published, a PubSub, and
// what reads the past. Each is a goroutine or two, however many rooms there are.
type link struct {
	hub    *Hub
	addr   string
	client *redis.Client // nil: the server is not known

	out  outbox
	subs subscriber
	past reader

	ctx     context.Context // of the subscriptions
	retired context.CancelFunc

	sending sync.Mutex // held while a batch is on its way
	server  string     // its identity, as of the last batch; guarded by sending
}

func newLink(h *Hub, addr string, client *redis.Client) *link {
	l := &link{hub: h, addr: addr, client: client}
	l.ctx, l.retired = context.WithCancel(h.ctx)
	l.out.init(h.cfg.MaxQueue)
	l.subs.init(l)
	l.past.init(l)
	return l
}

func (l *link) start() {
	l.hub.wg.Go(l.publishAll)
	l.hub.wg.Go(l.past.run)
	if l.client != nil {
		l.hub.wg.Go(l.subs.run)
	}
}

// learn does what an error asks for.
func (l *link) learn(err error) {
	switch {
	case l.client == nil || isMoved(err):
		l.hub.servers.reload()
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		for _, s := range []*redis.Script{publishScript, presenceScript, catchUpScript, historyScript} {
			if s.Load(l.hub.ctx, l.client).Err() != nil {
				return
			}
		}
	case redis.HasErrorPrefix(err, "NOLEASE"):
		l.hub.keeper.hurry()
	}
}

var replicationID = regexp.MustCompile(`master_replid:([0-9a-f]{12})`)

// identify asks for the server's identity, as append.lua has it, before anything is sent to it.
// l.sending is held.
func (l *link) identify() error {
	info, err := l.client.Info(l.hub.ctx, "replication").Result()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	l.server = "-"
	if m := replicationID.FindStringSubmatch(info); m != nil {
		l.server = m[1]
	}
	return nil
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

// lookTime bounds the look at what servers do when their memory is full. It is for a warning only.
const lookTime = 2 * time.Second

var (
	evictionPolicy = regexp.MustCompile(`(?m)^maxmemory_policy:([a-z-]+)\r?$`)
	memoryLimit    = regexp.MustCompile(`(?m)^maxmemory:[1-9]`)
)

// warnOfEviction writes one line if a server may delete rooms when its memory is full. All policies
// but one may: streams expire, so the volatile-* ones take them as well. Where INFO is forbidden,
// or says nothing of it, there is nothing to say.
func (t *servers) warnOfEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var warned sync.Once
	look := func(ctx context.Context, c *redis.Client) error {
		info := c.Info(ctx, "memory").Val()
		policy := evictionPolicy.FindStringSubmatch(info)
		if policy == nil || policy[1] == "noeviction" || !memoryLimit.MatchString(info) {
			return nil
		}
		warned.Do(func() {
			t.hub.cfg.Logger.Warn().Str("redis", c.Options().Addr).Str("policy", policy[1]).
				Msg("redisgroup: Redis may throw rooms away when its memory is full: set maxmemory-policy to noeviction")
		})
		return nil
	}
	if t.cluster != nil {
		_ = t.cluster.ForEachMaster(ctx, look) // the error is that of finding them, which others tell of
		return
	}
	_ = look(ctx, t.client.(*redis.Client))
}
