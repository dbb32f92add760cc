package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Two processes are one chat, for people with nc.
func TestShared(t *testing.T) {
	m := miniredis.RunT(t)
	one, two := serve(t, m.Addr(), testOptions()), serve(t, m.Addr(), testOptions())
	ann, bob := one.dialLines(t), two.dialLines(t)
	ann.say("/nick ann")
	ann.hears(" is now ann")
	bob.say("/nick ANN")
	bob.hears("ann is somebody else")
	bob.say("/nick bob")
	bob.hears(" is now bob")
	ann.hears(" is now bob")
	bob.say("hello from two")
	ann.hears("<bob> hello from two")
	bob.hears("<bob> hello from two")
	ann.say("hello from one")
	bob.hears("<ann> hello from one")
	ann.say("/msg bob psst")
	ann.hears("(ann -> bob) psst")
	bob.hears("(ann -> bob) psst")
	bob.say("/join other")
	ann.hears("bob has left lobby")
	bob.say("/join lobby")
	ann.hears("bob has joined lobby")
	bob.hears("<ann> hello from one") // the history
	ann.say("/who")
	ann.hears("* in lobby: ann, bob")
	ann.say("/list")
	ann.hears("* rooms: lobby (2)")
	ann.say("/quit")
	bob.hears("ann has left lobby")
	carl := two.dialLines(t)
	carl.until("/nick ann", " is now ann") // the name is free soon
	one.stop()
	bob.say("still here")
	bob.hears("<bob> still here")
}

// until says something until it has heard what is wanted.
func (l *liner) until(say, want string) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		l.say("%s", say)
		for l.in.Scan() {
			if strings.HasSuffix(l.in.Text(), want) {
				return
			}
			if strings.Contains(l.in.Text(), "somebody else") {
				break
			}
		}
	}
	l.t.Fatalf("never heard %q", want)
}

// dialPage opens a page's connection.
func (r *running) dialPage(t *testing.T, query string) net.Conn {
	t.Helper()
	c, _, _, err := ws.Dialer{Timeout: time.Minute}.Dial(t.Context(), "ws://"+r.srv.Addrs()[0].String()+"/ws?"+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// pageOf opens a page's connection, and waits until the nickname is its own.
func (r *running) pageOf(t *testing.T, query string) net.Conn {
	t.Helper()
	c := r.dialPage(t, query)
	if _, err := wsutil.ReadServerText(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A page that has come back, while its first connection was not known to be dead, keeps its name
// when that ends.
func TestNameOutlivesGhost(t *testing.T) {
	r := serve(t, miniredis.RunT(t).Addr(), testOptions())
	ghost := r.pageOf(t, annsPage)
	r.pageOf(t, annsPage)
	ghost.Close()
	thief := r.dialLines(t)
	for range 40 { // fewer than a burst; each asks Redis, so the ghost's end is before one of them
		thief.say("/nick ann")
		thief.hears("ann is somebody else")
	}
}

// nobodyHas waits until a name is free.
func (r *running) nobodyHas(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, name+" is free", func() bool {
		_, taken, err := r.hub.Owner(t.Context(), name)
		return err == nil && !taken
	})
}

// hasConns waits until there are n connections.
func (r *running) hasConns(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d connections are left", n), func() bool { return r.srv.Stats().Conns == n })
}

const annsPage = "nick=ann&room=lobby&key=secret"

// A page that comes back while Redis is away is sent away, and its older connection gives the name
// back when that ends, whichever is first.
func TestFailedClaimLeavesTheName(t *testing.T) {
	for _, olderFirst := range []bool{false, true} {
		t.Run(fmt.Sprint(olderFirst), func(t *testing.T) {
			m := miniredis.RunT(t)
			r := serve(t, m.Addr(), testOptions())
			older := r.pageOf(t, annsPage)
			m.SetError("LOADING it is away")
			newer := r.dialPage(t, annsPage)
			left := 1
			if olderFirst {
				older.Close()
				left = 0
			}
			for err := error(nil); err == nil; { // until it is closed
				_, err = wsutil.ReadServerText(newer)
			}
			newer.Close()
			r.hasConns(t, left)
			m.SetError("")
			older.Close()
			r.nobodyHas(t, "ann")
		})
	}
}

// A name whose last holder goes while Redis is away is free once Redis is back, however long that
// takes.
func TestNameOfOneWhoGoesWhileRedisIsAway(t *testing.T) {
	m := miniredis.RunT(t)
	r := serve(t, m.Addr(), testOptions())
	page := r.pageOf(t, annsPage)
	m.SetError("LOADING it is away")
	page.Close()
	r.hasConns(t, 0)
	m.SetError("")
	r.nobodyHas(t, "ann")
}

// A name that is claimed while the connection closes is nobody's.
func TestClaimOfClosed(t *testing.T) {
	r := serve(t, miniredis.RunT(t).Addr(), testOptions())
	for i := range 20 {
		c := r.dialLines(t)
		c.say("/nick bob%d", i)
		c.Close()
	}
	r.hasConns(t, 0)
	for i := range 20 {
		r.nobodyHas(t, fmt.Sprintf("bob%d", i))
	}
}
