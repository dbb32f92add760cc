package redisgroup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// A hold is a name that this process has. The keeper's mu guards it.
type hold struct {
	owner string
	token uint64
	term  int                    // of the keeper, in which Redis has said that it is ours
	by    map[*claimant]struct{} // nil is Claim, until it is released; others are ClaimFor, until they leave
}

// A claimant is a connection that has claimed a name.
type claimant struct {
	ref  loop.Ref
	then func(c *loop.Conn, err error)
	gone bool // guarded by the keeper's mu
}

// A question is a call of claim.lua, on the lane of the nodes: answers come in the order of
// questions. The keeper's mu guards it.
type question struct {
	keeper          *keeper
	op, name, owner string
	token           uint64
	by              *claimant // of a claim: the connection, if it is for one
	again           bool      // of a claim: of a name that the process has, and Redis has not

	node      string // who asks, and
	term      int    // in which term
	abandoned bool   // nobody waits for the answer
	got       uint64
	err       error
	done      chan struct{} // closed when it is answered
}

// post asks Redis. k.mu is held.
func (k *keeper) post(q question) (*question, error) {
	q.keeper, q.done = k, make(chan struct{})
	err := q.queue()
	if err == nil {
		k.asked++
	}
	return &q, err
}

func (q *question) queue() error {
	keys := &q.keeper.hub.keys
	fresh := q.op == "claim" && !q.again // anybody may claim a name
	return q.keeper.hub.ask(&outgoing{place: place{bucket: keys.buckets}, op: opAsk, ask: q, bounded: fresh})
}

func (q *question) void() bool { return false }

func (q *question) command() (*script, []string, []any) {
	k := q.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	q.node, q.term = k.nameLocked(), k.term
	keys := &k.hub.keys
	return claimScript, []string{keys.claims(), keys.nodes(), keys.claimed(q.node), keys.counts(), keys.token(), keys.loss()},
		[]any{q.op, q.node, q.name, q.owner, q.token, q.again}
}

// answered takes the answer to q, or has it asked again: when there is a lease, with the newer
// token, or when the loss is over.
func (q *question) answered(cmd *redis.Cmd) error {
	k := q.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	err := cmd.Err()
	value := uint64(0)
	if err != nil {
		_, text, _ := strings.Cut(err.Error(), " ")
		value, _ = strconv.ParseUint(text, 10, 64)
	}
	switch {
	case redis.HasErrorPrefix(err, "NOLEASE"):
		return err
	case redis.HasErrorPrefix(err, "STALE") && !q.again:
		q.token = value
		return err
	case redis.HasErrorPrefix(err, "LOST"):
		k.hub.after(time.Duration(value)*time.Millisecond+keepSlack, func() {
			if err := q.queue(); err != nil {
				q.refuse(err)
			}
		})
		return nil
	}
	k.asked--
	q.err = err
	if q.op == "list" {
		q.err = k.compare(q, cmd)
	} else {
		q.got, q.err = cmd.Uint64()
	}
	k.settle(q)
	close(q.done)
	return nil
}

func (q *question) refuse(err error) {
	cmd := redis.NewCmd(q.keeper.hub.ctx)
	cmd.SetErr(err)
	_ = q.answered(cmd)
}

// settle does what an answer says. Where there is none a list of what Redis has will tell. k.mu is
// held.
func (k *keeper) settle(q *question) {
	ho := k.held[q.name]
	switch {
	case redis.HasErrorPrefix(q.err, "STALE"): // its owner has claimed it in another process since
		if ho != nil && ho.token == q.token {
			delete(k.held, q.name)
		}
	case q.err != nil:
		k.dirty = true
		k.renewNow()
	case q.op == "claim" && q.got > 0:
		k.granted(q)
	case q.op == "claim" && ho != nil && ho.owner == q.owner:
		delete(k.held, q.name)
		k.tellLost(q.name, ho)
	}
}

// granted notes what a claim was granted. k.mu is held.
func (k *keeper) granted(q *question) {
	k.newest = max(k.newest, q.got)
	ho := k.held[q.name]
	if ho == nil || ho.owner != q.owner {
		if ho != nil {
			k.tellLost(q.name, ho)
		}
		ho = &hold{owner: q.owner, by: make(map[*claimant]struct{})}
		k.held[q.name] = ho
	}
	ho.token, ho.term = q.got, q.term
	if !q.again && !q.abandoned && (q.by == nil || !q.by.gone) {
		ho.by[q.by] = struct{}{}
	}
	k.endUnclaimed(q.name, ho)
}

// endUnclaimed gives a name back that nobody here wants any more. k.mu is held.
func (k *keeper) endUnclaimed(name string, ho *hold) {
	if len(ho.by) == 0 {
		delete(k.held, name)
		_, _ = k.post(question{op: "release", name: name, owner: ho.owner, token: ho.token}) // Close gives all back
	}
}

// compare makes Redis and this process agree on names: what only Redis has is given back, and what
// only the process has is claimed again. cmd lists names and values, see claim.lua. k.mu is held.
func (k *keeper) compare(q *question, cmd *redis.Cmd) error {
	listed, err := cmd.StringSlice()
	if err != nil || q.node != k.nameLocked() || len(listed)%2 != 0 {
		return errors.Join(errAnswer, err)
	}
	there := make(map[string]bool)
	for pair := range slices.Chunk(listed, 2) {
		name := pair[0]
		_, value, _ := strings.Cut(pair[1], " ")
		number, owner, _ := strings.Cut(value, " ")
		token, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return errors.Join(errAnswer, err)
		}
		if ho := k.held[name]; ho != nil && ho.owner == owner {
			ho.token, ho.term, there[name] = token, q.term, true
		} else {
			_, _ = k.post(question{op: "release", name: name, owner: owner, token: token})
		}
	}
	for name, ho := range k.held {
		if !there[name] {
			_, _ = k.post(question{op: "claim", name: name, owner: ho.owner, token: ho.token, again: true})
		}
	}
	return nil
}

// wait returns the answer to a question, which is 0 if the name is another's, or that ctx has
// ended.
func (k *keeper) wait(ctx context.Context, q *question) error {
	var err error
	select {
	case <-q.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-k.hub.ctx.Done():
		err = ErrClosed
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-q.done:
		if q.err == nil && q.got == 0 {
			return ErrTaken
		}
		return q.err
	default:
		q.abandoned = true
		return err
	}
}

// Claim makes a name unique over all processes. It is owner's, a text of the caller's choice, until
// it is released, or the process has been dead for Config.Lease. The same owner may claim it again,
// also from another process, which then has it. ErrTaken: it is another's. It asks Redis: never
// call it on a loop; see ClaimFor.
//
// With another error owner has it no more than before: what Redis has granted all the same is given
// back. After a loss of all that Redis had, Claim waits for up to Config.Lease.
//
// A process that was cut off for longer than the lease may lose a name to another; that goes to
// Config.OnError, as a *LostError with ErrTaken. See Token for what must not be done twice.
func (h *Hub) Claim(ctx context.Context, name, owner string) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	return h.keeper.claim(ctx, name, owner, nil)
}

// claim claims a name for by, or for as long as it is not released if by is nil.
func (k *keeper) claim(ctx context.Context, name, owner string, by *claimant) error {
	k.mu.Lock()
	q, err := k.post(question{op: "claim", name: name, owner: owner, token: k.newest, by: by})
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return k.wait(ctx, q)
}

// Release gives back a name that owner has claimed in this process, however often. ErrTaken: it has
// not, or it has been claimed by another process since. It asks Redis, as Claim does. With another
// error the Hub does that once Redis answers, unless the name is claimed again before.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	k := h.keeper
	k.mu.Lock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner {
		k.mu.Unlock()
		return ErrTaken
	}
	delete(k.held, name)
	q, err := k.post(question{op: "release", name: name, owner: owner, token: ho.token})
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return k.wait(ctx, q)
}

// Token returns the fencing token of the grant by which owner has a name in this process: larger
// than that of each grant before. A job that is given tokens refuses one that is smaller than
// another it has seen. false: owner has no such grant, or the process may have had no lease
// meanwhile.
func (h *Hub) Token(name, owner string) (token uint64, ok bool) {
	k := h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner || ho.term != k.term || !time.Now().Before(k.until) {
		return 0, false
	}
	return ho.token, true
}

// ClaimFor claims a name for a connection, as Claim does. It is owner's until the last of its
// connections here has closed, or has called ReleaseFor. then is called on c's loop with Claim's
// error, and once more with ErrTaken should the process lose the name later; not at all once c has
// closed. ClaimFor must be called on c's loop, and returns an error of loop.Offload or a
// *SizeError, without calling then. A nil then panics.
func (h *Hub) ClaimFor(c *loop.Conn, name, owner string, then func(c *loop.Conn, err error)) error {
	if then == nil {
		panic("redisgroup: ClaimFor with a nil func")
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	by := &claimant{ref: c.Ref(), then: then}
	c.AfterClose(func(error) { h.keeper.leave(name, by) })
	return loop.Offload(c, func(ctx context.Context) error { return h.keeper.claim(ctx, name, owner, by) }, then)
}

// ReleaseFor gives back what ClaimFor has claimed for c, unless another connection of owner here
// has it, too. It does not wait: Redis is told in the background.
func (h *Hub) ReleaseFor(c *loop.Conn, name, owner string) {
	k := h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if ho := k.held[name]; ho != nil && ho.owner == owner {
		maps.DeleteFunc(ho.by, func(by *claimant, _ struct{}) bool { return by != nil && by.ref == c.Ref() })
		k.endUnclaimed(name, ho)
	}
}

// leave is called when by has closed.
func (k *keeper) leave(name string, by *claimant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by.gone = true
	if ho := k.held[name]; ho != nil {
		delete(ho.by, by)
		k.endUnclaimed(name, ho)
	}
}

// tellLost tells those who had a name that it is another's. k.mu is held.
func (k *keeper) tellLost(name string, ho *hold) {
	for by := range ho.by {
		if by == nil {
			k.hub.after(0, func() { k.hub.report(&LostError{Room: name, Err: ErrTaken}) })
		} else {
			_ = by.ref.TellEventually(func(c *loop.Conn) { by.then(c, ErrTaken) })
		}
	}
}

// Owner returns who has claimed a name, and false if nobody has. It asks Redis, as Claim does.
func (h *Hub) Owner(ctx context.Context, name string) (owner string, ok bool, err error) {
	held, err := onredis.Answer(ctx, func() (string, error) { return h.masters.client.HGet(ctx, h.keys.claims(), name).Result() })
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if f := strings.SplitN(held, " ", 3); err == nil && len(f) == 3 {
		return f[2], true, nil
	}
	return "", false, err
}
