package redisgroup

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// A nameLease is a name that this process holds. The renewer's mu guards it.
type nameLease struct {
	owner string
	token uint64
	term  int         // the term of the renewer in which Redis last confirmed the name
	by    []*claimant // nil stands for Claim, until Release; others are ClaimFor, until they leave
}

// A claimant is a connection that has claimed a name.
type claimant struct {
	ref  loop.Ref
	then func(c *loop.Conn, err error)
}

// same reports whether both are of Claim, or of the same connection.
func (by *claimant) same(other *claimant) bool {
	return by == other || by != nil && other != nil && by.ref == other.ref
}

// A claimRequest is a call of claim.lua, on the sender of the nodes. Answers come in the order of
// the requests, so each answer reflects all earlier requests. The renewer's mu guards it.
type claimRequest struct {
	renewer         *renewer
	op, name, owner string
	token           uint64 // of the grant; for a new claim, the newest token seen

	ctx  context.Context // of a new claim: when it is done, nobody wants the name
	by   *claimant       // of a new claim: the connection, if any
	term int             // the renewer's term when the request was made
	done chan error      // receives the answer
}

// post queues a request. k.mu is held.
func (k *renewer) post(q claimRequest) *claimRequest {
	q.renewer, q.done = k, make(chan error, 1)
	q.queue()
	return &q
}

// queue queues q. New claims are bounded, because anyone may claim a name.
func (q *claimRequest) queue() {
	h := q.renewer.hub
	o := &request{place: place{bucket: h.keys.buckets}, op: opQuery, query: q, bounded: q.op == "claim"}
	if err := h.querySenders[o.bucket].add(o); err != nil {
		q.refuse(err)
	}
}

func (q *claimRequest) void() bool { return q.op == "claim" && q.ctx.Err() != nil }

func (q *claimRequest) command() (*onredis.Script, []string, []any) {
	k := q.renewer
	k.mu.Lock()
	defer k.mu.Unlock()
	q.term = k.term
	keys, node := &k.hub.keys, k.nameLocked()
	return claimScript, []string{
		keys.claims(), keys.nodes(), keys.claimed(node), keys.counts(), keys.token(), keys.loss(),
	}, []any{q.op, node, q.name, q.owner, q.token}
}

func (q *claimRequest) refuse(err error) { q.done <- err }

// answered processes the answer to q, or repeats q: once there is a lease, with the newer token, or
// when the wait after a data loss is over. Without an answer, a list will show what Redis has.
func (q *claimRequest) answered(cmd *redis.Cmd) error {
	k := q.renewer
	k.mu.Lock()
	defer k.mu.Unlock()
	value, err := cmd.Uint64()
	var listed []string
	if q.op == "list" {
		if listed, err = cmd.StringSlice(); len(listed)%3 != 0 {
			err = errAnswer
		}
	}
	switch stale := redis.HasErrorPrefix(err, "STALE"); {
	case redis.HasErrorPrefix(err, "NOLEASE"):
		return err
	case stale && q.op == "claim":
		q.token = number(err)
		return err
	case redis.HasErrorPrefix(err, "LOST"):
		k.hub.after(time.Duration(number(err))*time.Millisecond+renewSlack, q.queue)
		return nil
	case stale: // its owner has since claimed it in another process
		if ho := k.held[q.name]; ho != nil && ho.token == q.token {
			delete(k.held, q.name)
		}
	case err != nil:
		k.dirty = true
		if q.op != "list" { // otherwise at the next lease
			signal(k.wake)
		}
	case q.op == "claim" && !k.confirmed(q.term): // the grant may belong to another owner by now
		k.dirty = true
		return answerError("NOLEASE since it was asked")
	case q.op == "list":
		k.compare(q.term, listed)
	case q.op != "release":
		err = k.settle(q, value)
	case value == 0:
		err = ErrTaken
	}
	q.done <- k.hub.explain(err)
	return nil
}

// number returns the number after the code of an error.
func number(err error) uint64 {
	_, text, _ := strings.Cut(err.Error(), " ")
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// settle records the grant of a claim. A token of 0 means that the name is another owner's. It
// returns the result of a new claim. k.mu is held.
func (k *renewer) settle(q *claimRequest, token uint64) (err error) {
	ho := k.held[q.name]
	if ho != nil && (ho.owner == q.owner) != (token > 0) { // the owner has changed
		delete(k.held, q.name)
		k.tellLost(q.name, ho)
		ho = nil
	}
	if token == 0 {
		return ErrTaken
	}
	if ho == nil {
		ho = &nameLease{owner: q.owner}
		k.held[q.name] = ho
	}
	ho.token, ho.term, k.newest = token, q.term, max(k.newest, token)
	if q.op == "claim" {
		if err = q.ctx.Err(); err == nil {
			ho.by = append(slices.DeleteFunc(ho.by, q.by.same), q.by)
		}
	}
	k.endUnclaimed(q.name, ho)
	return err
}

// endUnclaimed releases a name that no claim in this process needs any more. k.mu is held.
func (k *renewer) endUnclaimed(name string, ho *nameLease) {
	if len(ho.by) == 0 {
		k.giveBack(name, ho)
	}
}

// giveBack releases a name. k.mu is held.
func (k *renewer) giveBack(name string, ho *nameLease) *claimRequest {
	delete(k.held, name)
	return k.post(claimRequest{op: "release", name: name, owner: ho.owner, token: ho.token})
}

// compare reconciles the names in Redis and in this process: names that only Redis has are
// released, names that only the process has are claimed again. listed are the names that Redis had
// in a term of the renewer. k.mu is held.
func (k *renewer) compare(term int, listed []string) {
	if term != k.term { // there will be another list
		return
	}
	there := make(map[string]bool)
	for entry := range slices.Chunk(listed, 3) {
		name, owner := entry[0], entry[2]
		token, _ := strconv.ParseUint(entry[1], 10, 64)
		if ho := k.held[name]; ho != nil && ho.owner == owner {
			ho.token, ho.term, there[name] = token, term, true
		} else {
			k.post(claimRequest{op: "release", name: name, owner: owner, token: token})
		}
	}
	for name, ho := range k.held {
		if !there[name] {
			k.post(claimRequest{op: "again", name: name, owner: ho.owner, token: ho.token})
		}
	}
}

// wait returns the answer to a claimRequest, or the error of ctx if it is done first.
func (k *renewer) wait(ctx context.Context, q *claimRequest) error {
	select {
	case err := <-q.done:
		return err
	case <-ctx.Done():
	case <-k.hub.ctx.Done():
	}
	k.mu.Lock() // a later answer sees that nobody waits
	defer k.mu.Unlock()
	select {
	case err := <-q.done:
		return err
	default:
		return cmp.Or(ctx.Err(), ErrClosed)
	}
}

// Claim makes a name unique across all processes. owner is a string that the caller chooses. It
// holds the name until Release, or until this process has been dead for Config.Lease. The same
// owner may claim the name again, also from another process, which then holds it. ErrTaken means
// that another owner holds the name. Claim queries Redis: never call it on a loop; see ClaimFor.
//
// After any other error, owner's hold on the name is as it was before the call: if Redis did grant
// the claim, the Hub releases it. After Redis has lost its data, Claim waits for up to
// Config.Lease.
//
// A process that is cut off for longer than the lease may lose a name to another. Config.OnError
// then gets a *LostError with ErrTaken. See Token for work that must not be done twice.
func (h *Hub) Claim(ctx context.Context, name, owner string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	return h.renewer.claim(ctx, name, owner, nil)
}

// claim claims a name for by, or, if by is nil, until it is released.
func (k *renewer) claim(ctx context.Context, name, owner string, by *claimant) error {
	k.mu.Lock()
	q := k.post(claimRequest{op: "claim", name: name, owner: owner, token: k.newest, ctx: ctx, by: by})
	k.mu.Unlock()
	return k.wait(ctx, q)
}

// Release releases a name that owner has claimed in this process, by Claim or ClaimFor, however
// many times. It does not tell the connections of ClaimFor. ErrTaken means that owner has not
// claimed it, or that another process has claimed it since. Release queries Redis, as Claim does.
// After any other error the Hub releases the name once Redis answers, unless the name is claimed
// again before that.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	k := h.renewer
	k.mu.Lock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner {
		k.mu.Unlock()
		return ErrTaken
	}
	q := k.giveBack(name, ho)
	k.mu.Unlock()
	return k.wait(ctx, q)
}

// Token returns the fencing token of owner's claim on a name in this process. It is larger than the
// token of every earlier grant of the name. A resource that is passed tokens must refuse any that
// is smaller than one it has seen. Token returns false if owner has no such claim, if the lease of
// this process may have expired, or if the Hub is closed.
//
// If Redis' clock is set forward by more than a lease, another owner may be granted the name at
// once. Both then have a token until this process renews its lease, within a third of Config.Lease.
func (h *Hub) Token(name, owner string) (token uint64, ok bool) {
	k := h.renewer
	k.mu.Lock()
	defer k.mu.Unlock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner || !k.confirmed(ho.term) || h.closed.Load() {
		return 0, false
	}
	return ho.token, true
}

// ClaimFor claims a name for a connection, as Claim does. owner holds the name until the last of
// its connections in this process has closed or has called ReleaseFor, or until Release. ClaimFor
// calls then on c's loop with Claim's error. If the process loses the name later, the then of c's
// latest call for that name and owner is called once more, with ErrTaken. It is never called after
// c has closed. ClaimFor must be called on c's loop. If it returns an error of loop.Offload or a
// *SizeError, it does not call then. It panics if then is nil.
//
// ClaimFor is a job of loop.Offload: other jobs of c wait for it. If Redis does not answer, that
// takes as long as the client's timeouts and retries.
func (h *Hub) ClaimFor(c *loop.Conn, name, owner string, then func(c *loop.Conn, err error)) error {
	if then == nil {
		panic("redisgroup: ClaimFor with a nil func")
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	m := h.join(c)
	if m == nil {
		return loop.ErrClosed
	}
	by, key := &claimant{c.Ref(), then}, claimKey{name, owner}
	ho := m.holdOn(key)
	err := loop.Offload(c, func(job context.Context) error {
		// A child of ho's context ends before ho.end returns, so that no grant comes after leave.
		ctx, cancel := context.WithCancel(ho.ctx)
		defer cancel()
		stop := context.AfterFunc(job, cancel)
		defer stop()
		return h.renewer.claim(ctx, name, owner, by)
	}, func(c *loop.Conn, err error) {
		if err = cmp.Or(err, ho.ctx.Err()); err != nil {
			m.unclaim(key, ho)
		}
		then(c, err)
	})
	if err != nil {
		m.unclaim(key, ho)
	}
	return err
}

// ReleaseFor releases a name that ClaimFor has claimed for c, unless another connection of owner in
// this process holds it, too. It ends c's pending calls of ClaimFor for that name and owner: their
// then gets context.Canceled. It does not wait for Redis. It must be called on c's loop.
func (h *Hub) ReleaseFor(c *loop.Conn, name, owner string) {
	if m := (*h.members.Get(c.Loop()))[c]; m != nil {
		m.endHold(claimKey{name, owner})
	}
	h.renewer.leave(name, owner, c.Ref())
}

// leave releases a connection's claim.
func (k *renewer) leave(name, owner string, ref loop.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ho := k.held[name]; ho != nil && ho.owner == owner {
		ho.by = slices.DeleteFunc(ho.by, (&claimant{ref: ref}).same)
		k.endUnclaimed(name, ho)
	}
}

// tellLost reports to the holders of a name that another owner has it. k.mu is held.
func (k *renewer) tellLost(name string, ho *nameLease) {
	for _, by := range ho.by {
		if by == nil {
			k.hub.after(0, func() { k.hub.report(&LostError{Room: name, Err: ErrTaken}) })
		} else {
			by.ref.Tell(func(c *loop.Conn) { by.then(c, ErrTaken) })
		}
	}
}

// Owner returns the owner of a name, or false if the name is free. It may still name an owner whose
// process has died, until another process has cleaned up. It queries Redis, as Claim does.
func (h *Hub) Owner(ctx context.Context, name string) (owner string, ok bool, err error) {
	held, err := onredis.Answer(ctx, func() (string, error) {
		client, err := h.master(h.keys.buckets)
		if err != nil {
			return "", err
		}
		return client.HGet(ctx, h.keys.claims(), name).Result()
	})
	if f := strings.SplitN(held, " ", 3); err == nil && len(f) == 3 {
		return f[2], true, nil
	}
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return "", false, err
}
