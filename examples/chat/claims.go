package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// settleTimeout is how long Redis has to take a name back, or to give it. What it has not taken
// back by then, the Hub gives back later; what it has not given is claimed again after claimEvery.
const (
	settleTimeout = 5 * time.Second
	claimEvery    = time.Second
)

// A claimer makes names unique over all processes: a Hub, see there.
type claimer interface {
	Claim(ctx context.Context, name, owner string) error
	Release(ctx context.Context, name, owner string) error
}

// owner is how a nickname is claimed: by the secret of a page, or else by the connection.
func owner(s *session, nick string) string {
	if s.key != "" {
		return s.key + " " + nick
	}
	return "conn" + strconv.FormatUint(s.c.ID(), 36) + "@" + s.chat.id + " " + nick
}

// claim has the connection among the name's holders before Redis is asked, so that the page's older
// connection does not give the name back when it ends meanwhile.
func (h *sharedHouse) claim(s *session, nick string, then func(err error)) {
	r := rename{h: h, me: s.c.Ref(), old: s.nick, nick: nick, before: owner(s, s.nick), now: owner(s, nick)}
	h.here.add(r.now, r.me)
	err := loop.Offload(s.c, r.claim, func(c *loop.Conn, err error) {
		if errors.Is(err, redisgroup.ErrTaken) {
			err = errTaken
		}
		if err == nil {
			err = h.hub.Bind(c, nick)
		}
		then(err)
	})
	if err != nil {
		if r.now != r.before {
			h.giveUp(r.now, nick, r.me)
		}
		then(err)
	}
}

// release does not wait for Redis, as it is called on a loop, where nothing can be offloaded for a
// connection that is closed.
func (h *sharedHouse) release(s *session, nick string) { h.giveUp(owner(s, nick), nick, s.c.Ref()) }

// A rename is a connection's way from one name to another.
type rename struct {
	h           *sharedHouse
	me          loop.Ref
	old, nick   string
	before, now string // their owners
}

// claim asks Redis for the new name, and gives the old one back if that is granted. The connection
// may close meanwhile; what it had and wanted is released then, and once more by settle, should
// that have been too early.
func (r *rename) claim(ctx context.Context) error {
	h := r.h
	instead := r.before != r.now && skeleton(r.old) == skeleton(r.nick) // one name for Redis
	if instead && h.here.isOnly(r.before, r.me) {
		_ = h.names.Release(ctx, skeleton(r.old), r.before)
	}
	err := h.names.Claim(ctx, skeleton(r.nick), r.now)
	switch {
	case r.before == r.now:
	case err != nil:
		if h.here.remove(r.now, r.me) && !errors.Is(err, redisgroup.ErrTaken) {
			h.settle(r.nick, r.now) // who knows whether it was granted
		}
		if instead {
			h.settle(r.old, r.before)
		}
	default:
		if h.here.remove(r.before, r.me) {
			h.settle(r.old, r.before)
		}
	}
	if err == nil && !h.here.has(r.now) {
		h.settle(r.nick, r.now)
	}
	return err
}

// giveUp has one holder of a name less, and gives it back if that was the last.
func (h *sharedHouse) giveUp(owner, nick string, me loop.Ref) {
	if h.here.remove(owner, me) {
		go h.settle(nick, owner)
	}
}

// settle has a name claimed in Redis if somebody here holds it, and else released: until that is
// still so afterwards, as claims and releases of others may come in between. It blocks.
func (h *sharedHouse) settle(nick, owner string) {
	for {
		held := h.here.has(owner)
		err := h.set(held, skeleton(nick), owner)
		switch {
		case h.here.has(owner) != held:
		case !held || err == nil || errors.Is(err, redisgroup.ErrTaken):
			return
		default:
			select {
			case <-h.ended:
				return
			case <-time.After(claimEvery):
			}
		}
	}
}

// set claims a name, or releases it.
func (h *sharedHouse) set(held bool, name, owner string) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if held {
		return h.names.Claim(ctx, name, owner)
	}
	return h.names.Release(ctx, name, owner)
}

// holders are the connections of this process that have a name or claim it, by its owner. There are
// two or more while a page has come back, and its older connection is not known to be dead.
type holders struct {
	mu sync.Mutex
	m  map[string][]loop.Ref
}

// add makes me a holder, if it is none yet.
func (g *holders) add(owner string, me loop.Ref) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m == nil {
		g.m = make(map[string][]loop.Ref)
	}
	if !slices.Contains(g.m[owner], me) {
		g.m[owner] = append(g.m[owner], me)
	}
}

// remove reports whether me was the last holder.
func (g *holders) remove(owner string, me loop.Ref) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.m[owner], me)
	if i < 0 {
		return false
	}
	g.m[owner] = slices.Delete(g.m[owner], i, i+1)
	if last = len(g.m[owner]) == 0; last {
		delete(g.m, owner)
	}
	return last
}

// has reports whether there is a holder.
func (g *holders) has(owner string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.m[owner]) > 0
}

// isOnly reports whether me is the only holder.
func (g *holders) isOnly(owner string, me loop.Ref) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.m[owner]) == 1 && g.m[owner][0] == me
}
