package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// inMemory runs f with a game on four loops.
func inMemory(t *testing.T, f func(t *testing.T, srv *looptest.Server)) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer("", zerolog.Nop())
		srv.NumLoops = 4
		f(t, looptest.Start(t, srv))
	})
}

// join opens a page, which joins a match. The key is the name.
func join(t *testing.T, srv *looptest.Server, match, name string) *wstest.Peer {
	t.Helper()
	p := wstest.Open(t, srv, "ws://x/ws", http.Header{"Origin": {"http://x"}})
	p.Send(fmt.Sprintf(`{"type":"join","match":%q,"name":%q,"key":%q}`, match, name, name))
	srv.Sleep(tick)
	return p
}

// sees wants the last field that a page has got to have these players.
func sees(t *testing.T, p *wstest.Peer, want ...player) {
	t.Helper()
	all := p.Received()
	if len(all) == 0 {
		t.Error("it has got no field")
		return
	}
	var got []player
	if err := json.Unmarshal([]byte(all[len(all)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("it sees %s, want %s", g, w)
	}
}

// Players of a match see each other move, and nobody of another match.
func TestMatch(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann, bob, eve := join(t, srv, "a", "ann"), join(t, srv, "a", "bob"), join(t, srv, "b", "eve")
		ann.Send(`{"type":"steer","dx":1,"dy":-7}`)
		srv.Sleep(3 * tick)
		ann.Send(`{"type":"steer"}`)
		srv.Sleep(time.Second)
		for _, p := range []*wstest.Peer{ann, bob} {
			sees(t, p, player{Name: "ann", X: 130, Y: 470}, player{Name: "bob", X: 180, Y: 500})
		}
		sees(t, eve, player{Name: "eve", X: 100, Y: 500})
		ann.Received()
		srv.Sleep(time.Second)
		if n := len(ann.Received()); n != 20 {
			t.Errorf("%d fields in a second, want 20", n)
		}
	})
}

// A player whose connection is lost has 30 s to find the place again. The place has one connection.
func TestComesBack(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann, bob := join(t, srv, "a", "ann"), join(t, srv, "a", "bob")
		ann.Reset()
		srv.Sleep(keepFor - time.Second)
		sees(t, bob, player{Name: "ann", X: 100, Y: 500, Away: true}, player{Name: "bob", X: 180, Y: 500})
		ann = join(t, srv, "a", "ann")
		srv.Sleep(time.Minute)
		sees(t, ann, player{Name: "ann", X: 100, Y: 500}, player{Name: "bob", X: 180, Y: 500})
		again := join(t, srv, "a", "ann")
		if err := ann.CloseError(); err == nil || err.Code != errElsewhere.Code {
			t.Errorf("the first connection ended with %v, want %v", err, errElsewhere)
		}
		again.Reset()
		srv.Sleep(keepFor + tick)
		sees(t, bob, player{Name: "bob", X: 180, Y: 500})
		bob.Reset()
		srv.Sleep(keepFor + tick)
		for i := range srv.Loops() {
			srv.Do(i, func(l *loop.Loop) {
				if n := len(*matches.Get(l)); n != 0 {
					t.Errorf("%d matches are left on loop %d", n, i)
				}
			})
		}
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers are left", n)
		}
	})
}

// An unknown message closes the connection, and so does a full match.
func TestRefused(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		for _, text := range []string{`{`, `{"type":"steer","dx":1}`, `{"type":"join","name":"ann"}`, `{"type":"leave"}`} {
			p := wstest.Open(t, srv, "ws://x/ws", http.Header{"Origin": {"http://x"}})
			p.Send(text)
			if err := p.CloseError(); err == nil || err.Code != websocket.StatusPolicy {
				t.Errorf("%s: closed with %v, want %v", text, err, errRequest)
			}
		}
		for i := range maxPlayers {
			join(t, srv, "a", fmt.Sprint(i))
		}
		if err := join(t, srv, "a", "late").CloseError(); err == nil || err.Code != errFull.Code {
			t.Errorf("one too many: closed with %v, want %v", err, errFull)
		}
	})
}
