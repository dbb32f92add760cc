package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/loop"
)

// A hold is a name that this process has. The keeper's mu guards it.
type hold struct {
	owner   string
	token   uint64
	term    int                    // of the keeper, in which Redis has said that it is ours
	claimed bool                   // by Claim, until it is released
	conns   map[*claimant]struct{} // by ClaimFor, until they have closed
}

// A claimant is a connection that has claimed a name.
type claimant struct {
	ref         loop.Ref
	name, owner string
	then        func(c *loop.Conn, err error)
	gone        bool // guarded by the keeper's mu
}

// A question is one call of claim.lua. The keeper's mu guards what follows the arguments.
type claimQuestion struct {
	op, name, owner string
	token           uint64
	answer          func(token uint64) // called with mu held
	term            int                // of the keeper, when it was asked

	ended, abandoned bool
	got              uint64
	err              error
}

func (k *keeper) claimKeys(node string) []string {
	keys := &k.hub.keys
	return []string{keys.claims(), keys.nodes(), keys.claimed(node), keys.counts(), keys.token(), keys.loss()}
}

func (q *claimQuestion) args(node string) []any { return []any{q.op, node, q.name, q.owner, q.token} }

// begin notes that q is under way. k.mu is held.
func (k *keeper) begin(q *claimQuestion) {
	k.asking[q.name]++
	q.term = k.term
}

// end takes the answer to q. An answer that did not come, or came too late for who asked, leaves it
// to sync to find out what Redis has.
func (k *keeper) end(q *claimQuestion, got uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asking[q.name]--; k.asking[q.name] == 0 {
		delete(k.asking, q.name)
	}
	q.ended, q.got, q.err = true, got, err
	if q.op != "release" {
		k.newest = max(k.newest, got)
	}
	stale := redis.HasErrorPrefix(err, "STALE")
	switch {
	case stale && q.op == "again": // its owner has claimed it in another process since
		if ho := k.held[q.name]; ho != nil && ho.owner == q.owner && ho.token == q.token {
			delete(k.held, q.name)
		}
	case q.abandoned, judge(err) == unclear && !stale:
		k.doubt()
	case err == nil && q.answer != nil:
		q.answer(got)
		if ho := k.held[q.name]; ho != nil && got == ho.token {
			ho.term = q.term
		}
	}
}

// doubt compares soon what Redis has with what this process has. k.mu is held.
func (k *keeper) doubt() {
	k.dirty = true
	k.hurry()
}

// ask asks Redis about a name until it has answered, or ctx ends. A node without a lease gets one
// first.
func (k *keeper) ask(ctx context.Context, q claimQuestion) (uint64, error) {
	for tries := 0; ; tries++ {
		got, err := k.askOnce(ctx, q)
		var value uint64
		if redis.HasErrorPrefix(err, "STALE") || redis.HasErrorPrefix(err, "LOST") {
			_, text, _ := strings.Cut(err.Error(), " ")
			value, _ = strconv.ParseUint(text, 10, 64)
		}
		switch {
		case redis.HasErrorPrefix(err, "NOLEASE") && tries < maxClaimTries:
			if err := await(ctx, func() error { return k.secure(ctx) }); err != nil {
				return 0, err
			}
		case redis.HasErrorPrefix(err, "STALE") && q.op == "claim" && tries < maxClaimTries:
			q.token = value
		case redis.HasErrorPrefix(err, "LOST"):
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-k.hub.ctx.Done():
				return 0, ErrClosed
			case <-time.After(time.Duration(value)*time.Millisecond + keepSlack):
			}
		default:
			return got, err
		}
	}
}

// maxClaimTries bounds how often a question is repeated that came too early or too late.
const maxClaimTries = 5

// maxAsking is how many questions may be under way: each takes memory, and anybody may claim a
// name.
const maxAsking = 4096

func (k *keeper) askOnce(ctx context.Context, template claimQuestion) (uint64, error) {
	q := &template
	k.mu.Lock()
	if len(k.asking) >= maxAsking && q.op == "claim" {
		k.mu.Unlock()
		return 0, errAway
	}
	node := k.nameLocked()
	k.begin(q)
	k.mu.Unlock()
	err := await(ctx, func() error {
		got, err := claimScript.Run(ctx, k.hub.servers.client, k.claimKeys(node), q.args(node)...).Uint64()
		k.end(q, got, err)
		return nil
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if !q.ended {
		q.abandoned = true
		return 0, err
	}
	return q.got, q.err
}

// askAll asks Redis about several names, in few round trips. What is not answered is left to sync.
func (k *keeper) askAll(ctx context.Context, all []*claimQuestion) (err error) {
	for some := range slices.Chunk(all, claimBatch) {
		node := k.name()
		pipe := k.hub.servers.client.Pipeline()
		cmds := make([]*redis.Cmd, len(some))
		for i, q := range some {
			cmds[i] = queueScript(ctx, pipe, claimScript, k.claimKeys(node), q.args(node))
		}
		_, _ = pipe.Exec(ctx)
		for i, q := range some {
			got, e := cmds[i].Uint64()
			if redis.HasErrorPrefix(e, "NOSCRIPT") {
				got, e = claimScript.Run(ctx, k.hub.servers.client, k.claimKeys(node), q.args(node)...).Uint64()
			}
			k.end(q, got, e)
			if e != nil {
				err = e
			}
		}
	}
	return err
}

// claimBatch is how many names are asked for in one round trip.
const claimBatch = 256

// Claim makes a name unique over all processes: a nickname, a job, a device that may be connected
// once. It is owner's, a text of the caller's choice, until it is released, or the process has been
// dead for Config.Lease. The same owner may claim it again, also from another process, which then
// has it: so a client that lost its server gets its name back at once if owner is a secret of its
// own. ErrTaken: it is another's. It asks Redis: never call it on a loop; see ClaimFor.
//
// With another error owner has it no more than before: should Redis have granted it, and its answer
// been lost, the Hub gives it back once Redis answers. After a loss of all that Redis had, Claim
// waits for up to Config.Lease, as those who had names come first.
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
	newest := k.newest
	k.mu.Unlock()
	got, err := k.ask(ctx, claimQuestion{op: "claim", name: name, owner: owner, token: newest, answer: func(token uint64) {
		if token > 0 {
			k.granted(name, owner, token, by)
		}
	}})
	if err == nil && got == 0 {
		return ErrTaken
	}
	return err
}

// granted notes a grant. k.mu is held.
func (k *keeper) granted(name, owner string, token uint64, by *claimant) {
	ho := k.held[name]
	if ho == nil || ho.owner != owner {
		if ho != nil {
			k.tellLost(name, ho)
		}
		ho = &hold{owner: owner, conns: make(map[*claimant]struct{})}
		k.held[name] = ho
	}
	ho.token = max(ho.token, token)
	switch {
	case by == nil:
		ho.claimed = true
	case !by.gone:
		ho.conns[by] = struct{}{}
	}
	k.endUnclaimed(name, ho)
}

// endUnclaimed gives a name back that nobody here wants any more. k.mu is held.
func (k *keeper) endUnclaimed(name string, ho *hold) {
	if ho.claimed || len(ho.conns) > 0 {
		return
	}
	delete(k.held, name)
	q := &claimQuestion{op: "release", name: name, owner: ho.owner, token: ho.token}
	k.begin(q)
	k.returns = append(k.returns, q)
	k.hurry()
}

// Release gives back a name that owner has claimed in this process. ErrTaken: it has not, or it has
// been claimed by another process since. It asks Redis, as Claim does. With another error it was
// not given back yet: the Hub does that once Redis answers, unless it is claimed again before.
//
// What one owner has claimed twice in a process is released at once.
func (h *Hub) Release(ctx context.Context, name, owner string) error {
	k := &h.keeper
	k.mu.Lock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner {
		k.mu.Unlock()
		return ErrTaken
	}
	delete(k.held, name)
	token := ho.token
	k.mu.Unlock()
	got, err := k.ask(ctx, claimQuestion{op: "release", name: name, owner: owner, token: token})
	if err != nil || got == 0 {
		k.mu.Lock()
		k.doubt()
		k.mu.Unlock()
	}
	if err == nil && got == 0 {
		return ErrTaken
	}
	return err
}

// Token returns the fencing token of the grant by which owner has a name in this process: larger
// than that of each grant before, whoever had it. Give it along with what must not be done by two,
// and have the other side refuse a smaller one than it has seen. false: owner has no such grant, or
// it is not certain, as the process had no lease for so long that Redis may have given the name to
// another. Any goroutine may call it; it does not wait.
func (h *Hub) Token(name, owner string) (token uint64, ok bool) {
	k := &h.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	ho := k.held[name]
	if ho == nil || ho.owner != owner || ho.term != k.term || !time.Now().Before(k.until) {
		return 0, false
	}
	return ho.token, true
}

// ClaimFor claims a name for a connection, as Claim does, and gives it back when c has closed, or
// ReleaseFor is called: the name is owner's until the last of its connections here has gone. then
// is called on c's loop with Claim's error, and once more with ErrTaken should the process lose the
// name later; not at all once c has closed. ClaimFor must be called on c's loop. It returns an
// error of loop.Offload or a *SizeError, and then is not called. A nil then panics.
func (h *Hub) ClaimFor(c *loop.Conn, name, owner string, then func(c *loop.Conn, err error)) error {
	if then == nil {
		panic("redisgroup: ClaimFor with a nil func")
	}
	if err := checkName("name", name); err != nil {
		return err
	}
	by := &claimant{ref: c.Ref(), name: name, owner: owner, then: then}
	c.AfterClose(func(error) { h.keeper.leave(by) })
	return loop.Offload(c, func(ctx context.Context) error { return h.keeper.claim(ctx, name, owner, by) }, then)
}

// ReleaseFor gives back what ClaimFor has claimed for c, unless another connection of owner here
// has it, too. It does not wait: Redis is told in the background.
func (h *Hub) ReleaseFor(c *loop.Conn, name, owner string) {
	k := &h.keeper
	k.mu.Lock()
	ho := k.held[name]
	var all []*claimant
	if ho != nil && ho.owner == owner {
		for by := range ho.conns {
			if by.ref == c.Ref() {
				all = append(all, by)
			}
		}
	}
	k.mu.Unlock()
	for _, by := range all {
		k.leave(by)
	}
}

// leave is called when by wants its name no more.
func (k *keeper) leave(by *claimant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by.gone = true
	ho := k.held[by.name]
	if ho == nil {
		return
	}
	if _, has := ho.conns[by]; has {
		delete(ho.conns, by)
		k.endUnclaimed(by.name, ho)
	}
}

// tellLost tells those who had a name that it is another's. k.mu is held.
func (k *keeper) tellLost(name string, ho *hold) {
	for by := range ho.conns {
		k.tellClaimant(by)
	}
	if ho.claimed {
		k.lostNames = append(k.lostNames, name)
		k.hurry()
	}
}

func (k *keeper) tellClaimant(by *claimant) {
	if errors.Is(by.ref.Tell(func(c *loop.Conn) { by.then(c, ErrTaken) }), loop.ErrMailboxFull) {
		_, _ = k.hub.timers.AfterFunc(mailboxRetry, func() { k.tellClaimant(by) })
	}
}

// reportLost tells Config.OnError of names that were lost.
func (k *keeper) reportLost() {
	k.mu.Lock()
	names := k.lostNames
	k.lostNames = nil
	k.mu.Unlock()
	for _, name := range names {
		k.hub.report(&LostError{Room: name, Err: ErrTaken})
	}
}

// giveBack tells Redis of names that connections here had.
func (k *keeper) giveBack(ctx context.Context) error {
	k.mu.Lock()
	all := k.returns
	k.returns = nil
	k.mu.Unlock()
	return k.askAll(ctx, all)
}

// sync makes Redis and this process agree on names: what Redis has and the process has not is given
// back, and what the process has and Redis has not is claimed again. Names about which there is a
// question under way are left alone.
func (k *keeper) sync(ctx context.Context) error {
	node := k.name()
	k.mu.Lock()
	k.dirty = false
	term := k.term
	k.mu.Unlock()
	redisHas, strays, err := k.namesOf(ctx, node)
	var all []*claimQuestion
	k.mu.Lock()
	if err != nil || node != k.nameLocked() {
		k.dirty = true
		k.mu.Unlock()
		return err
	}
	for _, name := range strays {
		all = append(all, &claimQuestion{op: "release", name: name})
	}
	for name, g := range redisHas {
		ho := k.held[name]
		switch {
		case k.asking[name] > 0:
		case ho == nil || ho.owner != g.owner:
			all = append(all, &claimQuestion{op: "release", name: name, owner: g.owner, token: g.token})
		default:
			ho.token, ho.term = max(ho.token, g.token), term
		}
	}
	for name, ho := range k.held {
		if g := redisHas[name]; k.asking[name] == 0 && (g == nil || g.owner != ho.owner) {
			all = append(all, k.claimAgain(name, ho))
		}
	}
	for _, q := range all {
		k.begin(q)
	}
	k.mu.Unlock()
	if err := k.askAll(ctx, all); err != nil && !redis.HasErrorPrefix(err, "STALE") {
		k.mu.Lock()
		k.dirty = true
		k.mu.Unlock()
		return err
	}
	return nil
}

// claimAgain makes the question by which a name is claimed that the process had already. It is lost
// if another has it; also, without a word, if its owner has claimed it elsewhere since.
func (k *keeper) claimAgain(name string, ho *hold) *claimQuestion {
	q := &claimQuestion{op: "again", name: name, owner: ho.owner, token: ho.token}
	q.answer = func(token uint64) {
		switch now := k.held[name]; {
		case token > 0 && now == ho:
			ho.token = max(ho.token, token)
		case token > 0: // it was released meanwhile
			k.doubt()
		case now == ho && ho.token == q.token:
			delete(k.held, name)
			k.tellLost(name, ho)
		}
	}
	return q
}

// A grant is what Redis says of a name.
type grant struct {
	owner string
	token uint64
}

// namesOf returns the names that Redis has as those of a node, and strays that it only lists so.
func (k *keeper) namesOf(ctx context.Context, node string) (map[string]*grant, []string, error) {
	client, keys := k.hub.servers.client, &k.hub.keys
	listed, err := client.SMembers(ctx, keys.claimed(node)).Result()
	if err != nil {
		return nil, nil, err
	}
	has := make(map[string]*grant)
	var strays []string
	for some := range slices.Chunk(listed, claimBatch) {
		values, err := client.HMGet(ctx, keys.claims(), some...).Result()
		if err != nil {
			return nil, nil, err
		}
		for i, v := range values {
			text, _ := v.(string)
			f := strings.SplitN(text, " ", 3)
			if len(f) != 3 || f[0] != node {
				strays = append(strays, some[i])
				continue
			}
			token, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", errAnswer, err)
			}
			has[some[i]] = &grant{f[2], token}
		}
	}
	return has, strays, nil
}

// Owner returns who has claimed a name, and false if nobody has. It asks Redis, as Claim does.
func (h *Hub) Owner(ctx context.Context, name string) (owner string, ok bool, err error) {
	var held string
	err = await(ctx, func() (err error) {
		held, err = h.servers.client.HGet(ctx, h.keys.claims(), name).Result()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	if f := strings.SplitN(held, " ", 3); err == nil && len(f) == 3 {
		return f[2], true, nil
	}
	return "", false, err
}
