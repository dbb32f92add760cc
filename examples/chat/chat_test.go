package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/loop/looptest/wstest"
)

// A user is a page in a chat in memory and in virtual time.
type user struct {
	t *testing.T
	*wstest.Peer
}

// inMemory runs f with a chat.
func inMemory(t *testing.T, f func(t *testing.T, srv *looptest.Server)) {
	synctest.Test(t, func(t *testing.T) { f(t, looptest.Start(t, newServer("", zerolog.Nop()))) })
}

// open does the handshake of a browser.
func open(t *testing.T, srv *looptest.Server) *user {
	t.Helper()
	return &user{t, wstest.Open(t, srv, "ws://x/ws", http.Header{"Origin": {"http://x"}})}
}

// join opens a page and joins. The key is the name.
func join(t *testing.T, srv *looptest.Server, name, room string) *user {
	t.Helper()
	u := open(t, srv)
	u.request(request{Type: "join", Name: name, Room: room, Key: name})
	return u
}

func (u *user) request(r request) {
	text, err := json.Marshal(r)
	if err != nil {
		u.t.Fatal(err)
	}
	u.Send(string(text))
}

func (u *user) say(text string) { u.request(request{Type: "say", Text: text}) }

// heard returns the events that have come since the last call, in short.
func (u *user) heard() string {
	u.t.Helper()
	var all []string
	for _, text := range u.Received() {
		var e event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			u.t.Fatal(err)
		}
		all = append(all, short(e))
	}
	return strings.Join(all, ", ")
}

func short(e event) string {
	switch e.Type {
	case "joined":
		return fmt.Sprintf("joined %s with %s", e.Room, strings.Join(e.Names, " "))
	case "say":
		return fmt.Sprintf("%d %s: %s", e.N, e.From, e.Text)
	}
	if e.Type == "unsaid" {
		return fmt.Sprintf("unsaid %s: %s", e.ID, e.Text)
	}
	return strings.TrimSpace(e.Type + " " + e.From + e.Text)
}

func (u *user) wants(want string) {
	u.t.Helper()
	if got := u.heard(); got != want {
		u.t.Errorf("heard %q, want %q", got, want)
	}
}

// closes expects the reason for which the connection was closed.
func (u *user) closes(want error) {
	u.t.Helper()
	if !errors.Is(u.Reason(), want) {
		u.t.Errorf("closed with %v, want %v", u.Reason(), want)
	}
}

func TestRooms(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann, bob, cid := join(t, srv, "ann", "lobby"), join(t, srv, "bob", "lobby"), join(t, srv, "cid", "attic")
		ann.say("hello")
		bob.say("hello, ann\x07\u202e\n")
		ann.wants("joined lobby with ann, in bob, 1 ann: hello, 2 bob: hello, ann")
		bob.wants("joined lobby with ann bob, 1 ann: hello, 2 bob: hello, ann")
		cid.wants("joined attic with cid")
		cid.request(request{Type: "join", Room: "lobby"})
		cid.wants("joined lobby with ann bob cid, 1 ann: hello, 2 bob: hello, ann")
		bob.Close()
		ann.wants("in cid, out bob")
		dan := join(t, srv, "dan", "attic")
		dan.wants("joined attic with dan")
	})
}

func TestHistory(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann := join(t, srv, "ann", "lobby")
		for i := range remember + 1 {
			ann.say(fmt.Sprint("m", i+1))
			srv.Sleep(time.Second)
		}
		ann.Close()
		srv.Sleep(time.Hour)
		bob := join(t, srv, "bob", "lobby")
		got := bob.heard()
		if !strings.HasPrefix(got, "joined lobby with bob, 2 ann: m2, 3 ann: m3, ") || !strings.HasSuffix(got, fmt.Sprintf("%d ann: m%[1]d", remember+1)) {
			t.Errorf("bob is sent %s", got)
		}
	})
}

func TestNames(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann := join(t, srv, "ann", "lobby")
		ann.wants("joined lobby with ann")
		thief := open(t, srv)
		for name, want := range map[string]error{"ANN": errTaken, "": errName, "<b>": errName, "a b": errName, strings.Repeat("é", maxName+1): errName, "\u0308a": errName} {
			thief.request(request{Type: "join", Name: name, Room: "lobby", Key: "another"})
			thief.wants("refused " + want.Error())
		}
		thief.request(request{Type: "join", Name: "bob", Room: "no room"})
		thief.wants("refused " + errName.Error())
		for name, want := range map[string]string{"हिन्दी": "हिन्दी", "e\u0301": "é", strings.Repeat("é", maxName): strings.Repeat("é", maxName)} {
			join(t, srv, name, want).wants("joined " + want + " with " + want)
			if taken := open(t, srv); want == "é" { // it looks the same, however it is written
				taken.request(request{Type: "join", Name: "é", Room: "marks"})
				taken.wants("refused " + errTaken.Error())
			}
		}
		again := join(t, srv, "ann", "lobby") // the same page, on a new connection
		ann.closes(errElsewhere)
		again.wants("joined lobby with ann")
		again.Close()
		join(t, srv, "Ann", "lobby").wants("joined lobby with Ann")
	})
}

func TestManyRooms(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		for i := range maxRooms {
			join(t, srv, fmt.Sprint("user", i), fmt.Sprint("room", i))
		}
		late := join(t, srv, "late", "lobby")
		late.wants("refused " + errRooms.Error())
		late.request(request{Type: "join", Room: "room7"})
		late.wants("joined room7 with late user7")
	})
}

// An empty room gives way to a new one.
func TestEmptyRoomGoes(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		for i := range maxRooms {
			u := join(t, srv, "ann", fmt.Sprint("room", i))
			u.say("hello")
			u.Close()
		}
		join(t, srv, "bob", "lobby").wants("joined lobby with bob")
		join(t, srv, "cid", "room3").wants("joined room3 with cid")
	})
}

func TestSilence(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		lurker, ann, dead := open(t, srv), join(t, srv, "ann", "lobby"), join(t, srv, "dead", "lobby")
		srv.Sleep(joinWithin)
		lurker.closes(errRequest)
		dead.Mute()
		for range 2 * quietFor / pingAfter {
			srv.Sleep(pingAfter)
			if ann.heard(); ann.Closed() {
				break
			}
			if ann.Pings() == 60 {
				ann.say("still here") // after 20 minutes
			}
		}
		if dead.closes(errDead); dead.Pings() != maxPings {
			t.Errorf("%d pings", dead.Pings())
		}
		ann.closes(errQuiet)
		if took := time.Duration(ann.Pings()) * pingAfter; took < 60*pingAfter+quietFor-2*pingAfter {
			t.Errorf("sent away after %v", took)
		}
	})
}

// A member that does not receive disturbs nobody. It misses what is too much for it, and is closed
// when nothing moves.
func TestSlowMember(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann, slow := join(t, srv, "ann", "lobby"), join(t, srv, "slow", "lobby")
		slow.Block(0)
		ann.heard()
		for i := range 25 { // within the time that its output may stand still
			ann.say(strings.Repeat("x", maxText))
			srv.Sleep(time.Second)
			if got := ann.heard(); !strings.HasPrefix(got, fmt.Sprint(i+1)) {
				t.Fatalf("ann hears %.40q", got)
			}
		}
		if slow.Closed() {
			t.Fatalf("closed early: %v", slow.Reason())
		}
		srv.Sleep(stuckFor)
		slow.closes(errStuck)
	})
}

func TestTooMuch(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		ann := join(t, srv, "ann", "lobby")
		for range 30 {
			ann.request(request{Type: "say", ID: "spam", Text: "spam"})
		}
		got := ann.heard()
		if said := strings.Count(got, "ann: spam"); said > 20 || !strings.Contains(got, "unsaid spam: that was too much") || ann.Closed() {
			t.Errorf("%d messages were taken: %s", said, got)
		}
		for _, text := range []string{"{", `{"type":"dance"}`, `{"type":"say","id":"` + strings.Repeat("x", maxID+1) + `"}`} {
			bob := join(t, srv, "bob", "lobby")
			bob.Send(text)
			bob.closes(errRequest)
		}
		early := open(t, srv)
		early.say("hello")
		early.closes(errRequest)
	})
}

// What is said is taken whole, or the page learns why not.
func TestLongText(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"2,000 accented letters", strings.Repeat("é", maxText), "1 ann: " + strings.Repeat("é", maxText)},
		{"2,000 characters outside the BMP", strings.Repeat("😀", maxText), "1 ann: " + strings.Repeat("😀", maxText)},
		{"one more", strings.Repeat("é", maxText+1), "unsaid 7: a message has 1 to 2000 characters, this one has 2001"},
		{"nothing to see", "\x07 \u202e", "unsaid 7: a message has 1 to 2000 characters, this one has 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, srv *looptest.Server) {
				ann := join(t, srv, "ann", "lobby")
				ann.heard()
				ann.request(request{Type: "say", ID: "7", Text: tt.text})
				ann.wants(tt.want)
			})
		})
	}
}

// The page is served with a policy that lets nothing run but its own script.
func TestPage(t *testing.T) {
	inMemory(t, func(t *testing.T, srv *looptest.Server) {
		for path, want := range map[string]string{"/": "<title>chat</title>", "/chat.js": "'use strict'", "/chat.css": "prefers-color-scheme"} {
			p := srv.Open()
			p.Send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
			got := p.Received()
			if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, want) || !strings.Contains(got, "script-src 'self';") {
				t.Errorf("%s: %.300s", path, got)
			}
			if !errors.Is(p.Reason(), websocket.ErrHTTP) {
				t.Errorf("%s: closed with %v", path, p.Reason())
			}
		}
		text, err := files.ReadFile("page/index.html")
		if err != nil || bytes.Contains(text, []byte("style=")) || bytes.Contains(text, []byte("<script>")) {
			t.Errorf("%v, or the page has inline styles or scripts, which its policy forbids", err)
		}
	})
}

// The same on a real socket.
func TestRealSocket(t *testing.T) {
	srv := newServer("tcp://127.0.0.1:0", zerolog.Nop())
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Wait(); err != nil { // the test's context is done by now
			t.Error(err)
		}
	})
	addr := srv.LocalAddr().String()
	r, err := http.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("the page: %s", r.Status)
	}
	heard := make(chan string, 10)
	client := &websocket.Client{URL: "ws://" + addr + "/ws"}
	err = srv.Loops()[0].Post(func() {
		loop.Dialer{Codec: client}.Dial(srv.Loops()[0], client.Addr(), func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				heard <- err.Error()
				return nil
			}
			_ = c.Send([]byte(`{"type":"join","name":"ann","room":"lobby"}`))
			_ = c.Send([]byte(`{"type":"say","text":"hello"}`))
			return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
				var e event
				err := json.Unmarshal(msg, &e)
				heard <- short(e)
				return err
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"joined lobby with ann", "1 ann: hello"} {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("never heard %q", want)
		}
	}
}
