package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/loopwheel/loopwheel/loop"
)

// serveShared runs a chat on a Redis until stop is called, or the test ends.
func serveShared(t testing.TB, opt options, redis string) (srv *loop.Server, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	opt.redis, opt.lease = redis, time.Minute // nobody is taken for dead because the machine stood still
	srv, end, err := build(ctx, opt, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := srv.Wait(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
		if err := end(); err != nil {
			t.Errorf("the hub ended with: %v", err)
		}
	}
	t.Cleanup(stop)
	return srv, stop
}

// Two processes are one chat, for people with nc.
func TestShared(t *testing.T) {
	m := miniredis.RunT(t)
	one, stopOne := serveShared(t, testOptions(), m.Addr())
	two, _ := serveShared(t, testOptions(), m.Addr())
	ann := dialLines(t, one)
	ann.say("/nick ann")
	ann.hears(" is now ann")
	bob := dialLines(t, two)
	bob.say("/nick ANN")
	bob.hears("ANN is somebody else, or looks like somebody else")
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
	ann.say("/msg carl psst")
	ann.hears("carl is not here")
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
	carl := dialLines(t, two)
	carl.until(t, "/nick ann", " is now ann") // the name is free soon
	stopOne()
	bob.say("still here")
	bob.hears("<bob> still here")
}

// until says something until it has heard what is wanted.
func (l *liner) until(t testing.TB, say, want string) {
	t.Helper()
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
	t.Fatalf("never heard %q", want)
}

func TestSharedNeedsRedis(t *testing.T) {
	opt := testOptions()
	opt.redis = "127.0.0.1:1"
	if _, _, err := build(t.Context(), opt, io.Discard); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("without a Redis: %v", err)
	}
}

// dialPage opens a page's connection.
func dialPage(t *testing.T, srv *loop.Server, query string) net.Conn {
	t.Helper()
	c, _, _, err := ws.Dialer{Timeout: time.Minute}.Dial(t.Context(), "ws://"+srv.Addrs()[0].String()+"/ws?"+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// pageOf opens a page's connection, and waits until the nickname is its own.
func pageOf(t *testing.T, srv *loop.Server, query string) net.Conn {
	t.Helper()
	c := dialPage(t, srv, query)
	if _, err := wsutil.ReadServerText(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A page that has come back, while its first connection was not known to be dead, keeps its name
// when that ends.
func TestSharedNameOutlivesGhost(t *testing.T) {
	m := miniredis.RunT(t)
	srv, _ := serveShared(t, testOptions(), m.Addr())
	ghost := pageOf(t, srv, "nick=ann&room=lobby&key=secret")
	pageOf(t, srv, "nick=ann&room=lobby&key=secret")
	ghost.Close()
	thief := dialLines(t, srv)
	for range 40 { // fewer than a burst; each asks Redis, so the ghost's end is before one of them
		thief.say("/nick ann")
		thief.hears("ann is somebody else, or looks like somebody else")
	}
}
