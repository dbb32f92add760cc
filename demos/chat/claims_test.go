package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws/wsutil"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// houseOf runs a chat on a Redis until the test ends.
func houseOf(t *testing.T) (*sharedHouse, *loop.Server, *miniredis.Miniredis) {
	t.Helper()
	opt := testOptions()
	opt.lease = 2 * time.Second
	ch := newChat(opt)
	ctx, cancel := context.WithCancel(context.Background())
	m := miniredis.RunT(t)
	h, err := openHouse(ctx, ch, []string{m.Addr()})
	if err != nil {
		t.Fatal(err)
	}
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
	return h, srv, m
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

// nobodyHas waits until a name is free.
func (h *sharedHouse) nobodyHas(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is never free", func() bool {
		_, taken, err := h.hub.Owner(t.Context(), skeleton(name))
		return err == nil && !taken
	})
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
		h, srv, m := houseOf(t)
		older := pageOf(t, srv, annsPage)
		m.SetError("LOADING it is away")
		newer := dialPage(t, srv, annsPage)
		left := 1
		if olderFirst {
			older.Close()
			left = 0
		}
		for err := error(nil); err == nil; { // until it is closed
			_, err = wsutil.ReadServerText(newer)
		}
		newer.Close()
		hasConns(t, srv, left)
		m.SetError("")
		older.Close()
		h.nobodyHas(t, "ann")
	}
}

// A name whose last holder goes while Redis is away is free once Redis is back, however long that
// takes.
func TestNameOfOneWhoGoesWhileRedisIsAway(t *testing.T) {
	h, srv, m := houseOf(t)
	page := pageOf(t, srv, annsPage)
	m.SetError("LOADING it is away")
	page.Close()
	hasConns(t, srv, 0)
	m.SetError("")
	h.nobodyHas(t, "ann")
}

// A name that is claimed while the connection closes is nobody's.
func TestClaimOfClosed(t *testing.T) {
	h, srv, _ := houseOf(t)
	for i := range 20 {
		c := dialLines(t, srv)
		c.say(fmt.Sprintf("/nick bob%d", i))
		c.Close()
	}
	hasConns(t, srv, 0)
	for i := range 20 {
		h.nobodyHas(t, fmt.Sprintf("bob%d", i))
	}
}

// A brokenHouse is one that nobody can leave.
type brokenHouse struct{ house }

func (brokenHouse) leave(*session, string) { panic("leaving") }

// A nickname is free again though entering a room, or leaving it, has panicked.
func TestNameIsFreeAfterAPanic(t *testing.T) {
	for name, breakRoom := range map[string]func(s *session){
		"entering": func(s *session) { s.local = nil },
		"leaving":  func(s *session) { s.chat.house = brokenHouse{s.chat.house} },
	} {
		inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
			ann := byLines(t, srv, "ann")
			for i := range srv.Loops() {
				srv.Do(i, func(l *loop.Loop) {
					for c := range l.Conns() {
						if s, ok := loop.HandlerAs[*session](c); ok {
							breakRoom(s)
						}
					}
				})
			}
			ann.Close()
			m := &member{Peer: srv.OpenTo(1), t: t}
			if m.say("/nick ann"); strings.Contains(m.heard(), "somebody else") {
				t.Errorf("%s: the name stays taken", name)
			}
		})
	}
}
