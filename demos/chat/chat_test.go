package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// inMemory runs f with a chat in memory and virtual time.
func inMemory(t *testing.T, change func(*options), f func(t *testing.T, srv *looptest.Server)) {
	synctest.Test(t, func(t *testing.T) {
		opt := testOptions()
		opt.idle, opt.ping, opt.rate, opt.history = 10*time.Minute, time.Minute, 5, 3
		if change != nil {
			change(&opt)
		}
		f(t, looptest.Start(t, newServer(opt)))
	})
}

// A member is somebody in a chat in memory, by lines or by WebSocket.
type member struct {
	*looptest.Peer
	t      *testing.T
	socket bool
	close  string // what the close frame said
	pongs  bool   // answers pings
}

func byLines(t *testing.T, srv *looptest.Server, nick string) *member {
	m := &member{Peer: srv.OpenTo(1), t: t}
	m.say("/nick " + nick)
	m.heard()
	return m
}

func bySocket(t *testing.T, srv *looptest.Server, query string) *member {
	m := &member{Peer: srv.OpenTo(0), t: t, socket: true}
	m.Send("GET /ws" + query + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	head, rest, _ := strings.Cut(m.Received(), "\r\n\r\n")
	contains(t, head, "101 Switching")
	m.events(rest)
	return m
}

func (m *member) say(text string) {
	if !m.socket {
		m.Send(text + "\n")
		return
	}
	m.Write(ws.MustCompileFrame(ws.MaskFrame(ws.NewTextFrame([]byte(text)))))
}

// heard returns what came, as lines: a WebSocket's events are shown as a line client gets them.
func (m *member) heard() string {
	m.t.Helper()
	if !m.socket {
		return m.Received()
	}
	var lines strings.Builder
	for _, e := range m.events(m.Received()) {
		if l := e.line(); l != "" {
			lines.WriteString(l + "\n")
		}
	}
	return lines.String()
}

func (m *member) events(wire string) (events []event) {
	m.t.Helper()
	in := bytes.NewReader([]byte(wire))
	for {
		f, err := ws.ReadFrame(in)
		switch {
		case err == io.EOF:
			return events
		case err != nil:
			m.t.Fatal(err)
		case f.Header.OpCode == ws.OpClose:
			code, reason := ws.ParseCloseFrameData(f.Payload)
			m.close = fmt.Sprintf("%d %s", code, reason)
		case f.Header.OpCode == ws.OpPing:
			if m.pongs {
				var b bytes.Buffer
				_ = wsutil.WriteClientMessage(&b, ws.OpPong, f.Payload)
				m.Write(b.Bytes())
			}
		default:
			var e event
			if err := json.Unmarshal(f.Payload, &e); err != nil {
				m.t.Fatal(err)
			}
			events = append(events, e)
		}
	}
}

func (m *member) wants(want string) {
	m.t.Helper()
	if got := m.heard(); got != want {
		m.t.Errorf("heard %q, want %q", got, want)
	}
}

func TestTalk(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		ann := byLines(t, srv, "ann")
		bob := bySocket(t, srv, "?nick=bob&room=lobby")
		ann.wants("* bob has joined lobby\n")
		bob.heard()
		ann.say("hi")
		ann.wants("<ann> hi\n")
		bob.wants("<ann> hi\n")
		bob.say("/msg ANN psst")
		ann.wants("(bob -> ann) psst\n")
		bob.wants("(bob -> ann) psst\n")
		bob.say("/join other")
		bob.wants("* in other: bob\n* bob has joined other\n")
		ann.wants("* bob has left lobby\n")
		bob.say("/list")
		bob.wants("* rooms: lobby (1), other (1)\n")
		bob.say("/leave")
		bob.say("anybody?")
		bob.wants("* in : \n* you are in no room; /join one\n")
		ann.say("/nick Bob")
		ann.wants("* Bob is somebody else, or looks like somebody else\n")
		ann.say("/nick ANN")
		ann.wants("* ann is now ANN\n")
		ann.say("/who")
		ann.wants("* in lobby: ANN\n")
		ann.say("/nonsense")
		ann.wants("* there is no /nonsense; try /help\n")
		ann.Close()
		srv.Shutdown()
		bob.heard()
		if bob.close != "1001 the server restarts" {
			t.Errorf("the drain closed with %q", bob.close)
		}
	})
}

// A room remembers the last messages, for those who come later, and is forgotten when it was empty
// for an hour.
func TestHistory(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		ann := byLines(t, srv, "ann")
		for _, s := range []string{"1", "2", "3", "4"} {
			ann.say(s)
		}
		at := time.Now().UTC().Format("[15:04] ")
		bob := bySocket(t, srv, "?nick=bob")
		bob.say("/join lobby")
		bob.wants(fmt.Sprintf("* in lobby: ann, bob\n%[1]s<ann> 2\n%[1]s<ann> 3\n%[1]s<ann> 4\n* bob has joined lobby\n", at))
		ann.say("/quit")
		bob.say("/quit")
		time.Sleep(remember - time.Minute)
		carl := byLines(t, srv, "carl")
		carl.say("/quit")
		time.Sleep(2 * time.Minute)
		dora := &member{Peer: srv.OpenTo(1), t: t}
		contains(t, dora.heard(), at+"<ann> 4\n") // carl's visit has put it off
		dora.say("/quit")
		time.Sleep(remember + time.Second)
		emil := &member{Peer: srv.OpenTo(1), t: t}
		if got := emil.heard(); strings.Contains(got, "<ann>") {
			t.Errorf("an hour later: %q", got)
		}
	})
}

func TestIdleAndRemind(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		ann := byLines(t, srv, "ann")
		bob := bySocket(t, srv, "?nick=bob")
		bob.pongs = true
		ann.say("/remind 10s tea")
		ann.wants("* in 10s\n")
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		ann.wants("* reminder: tea\n")
		for range 10 { // pongs keep bob's connection, and say nothing of bob
			time.Sleep(time.Minute - time.Second)
			synctest.Wait()
			bob.heard()
		}
		ann.wants("* you said nothing for 10m0s: goodbye\n")
		if !ann.Ended() {
			t.Error("ann is still here")
		}
		if bob.heard(); !bob.Ended() || bob.close != "4000 you said nothing for 10m0s" {
			t.Errorf("bob was closed with %q", bob.close)
		}
	})
}

func TestIdleCommand(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		ann := byLines(t, srv, "ann")
		time.Sleep(9 * time.Minute)
		ann.say("/idle")
		ann.wants("* you will be kicked in 1m0s unless you say something\n")
		ann.say("hello")
		ann.say("/idle")
		ann.wants("<ann> hello\n* you will be kicked in 10m0s unless you say something\n")
	})
}

func TestDeadAndFlood(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		dead, floods := bySocket(t, srv, "?nick=dead&room=lobby"), bySocket(t, srv, "?nick=floods&room=lobby")
		floods.pongs = true
		for range 22 {
			floods.say("spam")
		}
		if floods.heard(); !errors.Is(floods.Reason(), handler.ErrRateLimit) || floods.close != "4002 too many messages at once" {
			t.Errorf("flood: closed with %v, %q", floods.Reason(), floods.close)
		}
		contains(t, dead.heard(), "* floods has left lobby (kicked: flood)\n")
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if dead.heard(); !errors.Is(dead.Reason(), handler.ErrHeartbeat) || dead.close != "4001 no answer to pings" {
			t.Errorf("dead: closed with %v, %q", dead.Reason(), dead.close)
		}
	})
}

func TestPage(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		for request, want := range map[string]string{
			"GET / HTTP/1.1":            "HTTP/1.1 200 OK",
			"GET /favicon.ico HTTP/1.1": "HTTP/1.1 404 Not Found",
			"DELETE / HTTP/1.1":         "HTTP/1.1 405 Method Not Allowed",
		} {
			p := srv.OpenTo(0)
			p.Send(request + "\r\nHost: x\r\n\r\n")
			got := p.Received()
			contains(t, got, want)
			if strings.Contains(want, "200") {
				contains(t, got, "script-src 'sha256-") // no other script runs
			}
			if !errors.Is(p.Reason(), websocket.ErrHTTP) {
				t.Errorf("%s: closed with %v", request, p.Reason())
			}
		}
	})
}

// Bad input is answered, and logged with the reason.
func TestBadInput(t *testing.T) {
	var log bytes.Buffer
	inMemory(t, func(o *options) { o.logger = zerolog.New(&log) }, func(t *testing.T, srv *looptest.Server) {
		const upgrade = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		for _, tc := range []struct{ request, status, logged string }{
			{"GET /ws HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Version: 13\r\nOrigin: https://evil.example\r\n\r\n", "HTTP/1.1 403 ", "evil.example"},
			{"GET /ws HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Version: 7\r\n\r\n", "HTTP/1.1 426 ", "426"},
			{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 413 ", "413"},
			{"\x16\x03\x01", "HTTP/1.1 400 ", "not HTTP"},
		} {
			log.Reset()
			p := srv.OpenTo(0)
			p.Send(tc.request)
			contains(t, p.Received(), tc.status)
			contains(t, log.String(), tc.logged)
		}
		for frame, want := range map[string]string{
			"\x81\x01x":            "1002 ",
			"\x83\x80mask":         "1002 ",
			"\x81\x81mask\x92":     "1007 ", // 0x92 ^ 'm' is 0xff
			"\x81\xfe\x10\x00m":    "",      // not all of the header yet
			"\x81\xfe\x10\x00mask": "1009 ",
		} {
			log.Reset()
			m := bySocket(t, srv, "?room=lobby")
			m.Send(frame)
			if m.heard(); m.close != want {
				t.Errorf("%q: closed with %q, want %q", frame, m.close, want)
			}
			contains(t, log.String(), strings.TrimSpace(want))
		}
	})
}

// What one types cannot move the cursors of others.
func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"  plain\t text ": "plain  text", "\x1b[2Jcleared": "[2Jcleared", "a\x00b\r\n": "ab", "\xff": "\uFFFD", "\u202Eevil": "evil",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	for _, name := range []string{"", "a b", "a,b", "/x", strings.Repeat("x", maxName+1), "\x1b"} {
		if got, err := goodName(name); err == nil {
			t.Errorf("goodName(%q) = %q", name, got)
		}
	}
}

func TestView(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		ann := bySocket(t, srv, "?nick=ann&room=lobby")
		ann.say("/watch on")
		time.Sleep(showEvery + time.Millisecond)
		synctest.Wait()
		var v *view
		for _, e := range ann.events(ann.Received()) {
			if e.View != nil {
				v = e.View
			}
		}
		if v == nil || v.Conns != 1 || v.Rooms != 1 || len(v.Loops) != srv.NumLoops || v.Loops[0].Conns+v.Loops[1].Conns != 1 {
			t.Fatalf("%+v", v)
		}
		srv.Do(0, func(l *loop.Loop) {
			if n := lookAt(l).Timers; n == 0 || n != v.Loops[0].Timers {
				t.Errorf("the view has %d timers on loop 0, there are %d", v.Loops[0].Timers, n)
			}
		})
	})
}
