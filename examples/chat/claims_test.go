package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws/wsutil"

	"github.com/loopwheel/loopwheel/loop"
)

// A claimGate holds back claims of one name while it is shut, before they reach Redis or before it
// is known what came of them.
type claimGate struct {
	claimer
	redis    *miniredis.Miniredis
	released atomic.Bool // Release has returned

	name   string
	before bool
	shut   atomic.Bool
	err    error // instead of asking Redis
	came   chan struct{}
	pass   chan struct{}
}

func (g *claimGate) Claim(ctx context.Context, name, owner string) (err error) {
	if name != g.name || !g.shut.Load() {
		return g.claimer.Claim(ctx, name, owner)
	}
	ctx = context.WithoutCancel(ctx)
	if !g.before {
		err = g.claimer.Claim(ctx, name, owner)
	}
	g.came <- struct{}{}
	<-g.pass
	defer func() { g.came <- struct{}{} }()
	switch {
	case g.err != nil:
		return g.err
	case g.before:
		err = g.claimer.Claim(ctx, name, owner)
	}
	return err
}

func (g *claimGate) Release(ctx context.Context, name, owner string) error {
	defer g.released.Store(true)
	return g.claimer.Release(ctx, name, owner)
}

// houseOf runs a chat on a Redis whose claims go through gate, until the test ends.
func houseOf(t *testing.T, gate *claimGate) (*sharedHouse, *loop.Server) {
	t.Helper()
	opt := testOptions()
	opt.lease = time.Minute
	ch := newChat(opt)
	ctx, cancel := context.WithCancel(context.Background())
	gate.redis = miniredis.RunT(t)
	h, err := openHouse(ctx, ch, []string{gate.redis.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	gate.came, gate.pass = make(chan struct{}, 100), make(chan struct{})
	gate.claimer, h.names = h.names, gate
	srv := ch.serve(h)
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	return h, srv
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// nobodyHas waits until a name is free, in Redis and here.
func (h *sharedHouse) nobodyHas(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is never free", func() bool {
		_, taken, err := h.hub.Owner(t.Context(), skeleton(name))
		return err == nil && !taken
	})
	eventually(t, "somebody holds a name", func() bool {
		h.here.mu.Lock()
		defer h.here.mu.Unlock()
		return len(h.here.m) == 0
	})
}

// holding returns the connections that have a name here, or claim it.
func (h *sharedHouse) holding(name string) (refs []loop.Ref) {
	h.here.mu.Lock()
	defer h.here.mu.Unlock()
	for owner, who := range h.here.m {
		if strings.HasSuffix(owner, " "+name) {
			refs = append(refs, who...)
		}
	}
	return refs
}

// hasConns waits until there are n connections.
func hasConns(t *testing.T, srv *loop.Server, n int) {
	t.Helper()
	eventually(t, "a connection stays", func() bool { return int(srv.Stats().Conns) == n })
}

const annsPage = "nick=ann&room=lobby&key=secret"

// A page that comes back while Redis is away is sent away, and its older connection gives the name
// back when that ends, whichever is first.
func TestFailedClaimLeavesTheName(t *testing.T) {
	for _, olderFirst := range []bool{false, true} {
		gate := &claimGate{name: "ann", before: true, err: errors.New("away")}
		h, srv := houseOf(t, gate)
		older := pageOf(t, srv, annsPage)
		gate.shut.Store(true)
		newer := dialPage(t, srv, annsPage)
		<-gate.came
		left := 1
		if olderFirst {
			older.Close()
			hasConns(t, srv, 1)
			left = 0
		}
		close(gate.pass)
		for err := error(nil); err == nil; { // until it is closed
			_, err = wsutil.ReadServerText(newer)
		}
		newer.Close()
		hasConns(t, srv, left)
		if n := len(h.holding("ann")); n != left {
			t.Errorf("%d hold the name, want %d", n, left)
		}
		older.Close()
		h.nobodyHas(t, "ann")
	}
}

// A name whose last holder goes while Redis is away is free once Redis is back, however long that
// takes.
func TestNameOfOneWhoGoesWhileRedisIsAway(t *testing.T) {
	gate := &claimGate{}
	h, srv := houseOf(t, gate)
	page := pageOf(t, srv, annsPage)
	gate.redis.SetError("LOADING it is away")
	page.Close()
	hasConns(t, srv, 0)
	eventually(t, "the name is not given up", func() bool { return gate.released.Load() })
	gate.redis.SetError("")
	h.nobodyHas(t, "ann")
}

// A name that somebody has here is claimed until Redis says that it is.
func TestNameOfOneWhoStaysWhileRedisIsAway(t *testing.T) {
	gate := &claimGate{name: "ann"}
	h, _ := houseOf(t, gate)
	const owner = "secret ann"
	h.here.add(owner, loop.Ref{})
	gate.redis.SetError("LOADING it is away")
	gate.shut.Store(true)
	settled := make(chan struct{})
	go func() {
		h.settle("ann", owner)
		close(settled)
	}()
	<-gate.came // Redis has refused it
	gate.shut.Store(false)
	gate.redis.SetError("")
	close(gate.pass)
	<-settled
	if who, _, err := h.hub.Owner(t.Context(), skeleton("ann")); who != owner {
		t.Errorf("it is %q's: %v", who, err)
	}
	h.here.remove(owner, loop.Ref{})
	h.settle("ann", owner)
	h.nobodyHas(t, "ann")
}

// A name that is claimed while the connection closes is nobody's: whether Redis has granted it
// before or does so afterwards.
func TestClaimOfClosed(t *testing.T) {
	for _, before := range []bool{false, true} {
		gate := &claimGate{name: "bob", before: before}
		h, srv := houseOf(t, gate)
		gate.shut.Store(true)
		dialLines(t, srv).say("/nick bob")
		<-gate.came
		for _, ref := range h.holding("bob") {
			if err := ref.Tell(func(c *loop.Conn) { c.Close() }); err != nil {
				t.Fatal(err)
			}
		}
		hasConns(t, srv, 0)
		close(gate.pass)
		<-gate.came
		h.nobodyHas(t, "bob")
	}
}
