package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// moment is longer than what goes to Redis and back takes in virtual time.
const moment = 200 * time.Millisecond

// A world is a chat in memory and virtual time: a Redis, and processes on it.
type world struct {
	*looptest.Server // the first process
	t                *testing.T
	redis            *miniredis.Miniredis
	opt              options
}

// inMemory runs f with a chat of one process.
func inMemory(t *testing.T, change func(*options), f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { testkit.Block(time.Minute) }) // until the client's dials have ended
		opt := testOptions()
		opt.idle, opt.rate, opt.history = 10*time.Minute, 5, 3
		if change != nil {
			change(&opt)
		}
		m, _ := redistest.Embedded(t)
		w := &world{t: t, redis: m, opt: opt}
		w.Server = w.process()
		f(t, w)
	})
}

// process starts one more process.
func (w *world) process() *looptest.Server {
	ch, err := openChat(w.t.Context(), redistest.EmbeddedClient(w.t, w.redis), w.opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := ch.close(); err != nil {
			w.t.Error(err)
		}
	})
	srv, err := ch.newServer()
	if err != nil {
		w.t.Fatal(err)
	}
	return looptest.Start(w.t, srv)
}

// pass lets time pass in Redis, too, which a miniredis does not do by itself.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= time.Minute {
		step := min(d, time.Minute)
		w.Sleep(step)
		w.redis.FastForward(step)
	}
}

// A member is somebody in a chat in memory, by lines or by WebSocket.
type member struct {
	*looptest.Peer
	srv    *looptest.Server
	t      *testing.T
	socket bool
	close  string // what the close frame said
	pongs  bool   // answers pings
}

func byLines(t *testing.T, srv *looptest.Server, nick string) *member {
	m := &member{Peer: srv.OpenTo(1), srv: srv, t: t}
	m.heard()
	m.say("/nick " + nick)
	m.heard()
	return m
}

func bySocket(t *testing.T, srv *looptest.Server, query string) *member {
	m := &member{Peer: srv.OpenTo(0), srv: srv, t: t, socket: true}
	m.Send("GET /ws" + query + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	srv.Sleep(moment)
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
	m.srv.Sleep(moment)
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

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want something with %q", got, want)
	}
}

func TestTalk(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		ann := byLines(t, w.Server, "ann")
		bob := bySocket(t, w.Server, "?nick=bob&room=lobby")
		ann.wants("* bob has joined lobby\n")
		bob.heard()
		ann.say("hi")
		ann.wants("<ann> hi\n")
		bob.wants("<ann> hi\n")
		bob.say("/msg ANN psst")
		ann.wants("(bob -> ann) psst\n")
		bob.wants("(bob -> ann) psst\n")
		bob.say("/msg nobody psst")
		bob.wants("* nobody has heard \"psst\": nobody is not here\n")
		bob.say("/join Other")
		bob.wants("* in other: bob\n* bob has joined other\n")
		ann.wants("* bob has left lobby\n")
		bob.say("/list")
		bob.wants("* rooms: lobby (1), other (1)\n")
		bob.say("/leave")
		bob.say("anybody?")
		bob.wants("* you are in no room; /join one\n* nobody has heard \"anybody?\": you are in no room; /join one\n")
		ann.say("/nick Bob")
		ann.wants("* bob is somebody else\n")
		ann.say("/nick Anna")
		ann.heard() // as seen from here: anna comes and ann goes
		ann.say("/who")
		ann.wants("* in lobby: anna\n")
		ann.say("/nonsense")
		ann.wants("* there is no /nonsense; try /help\n")
		ann.say("/help")
		contains(t, ann.heard(), "/msg NAME TEXT, /nick NAME, /quit")
		ann.Close()
		w.Shutdown()
		bob.heard()
		if bob.close != "1001 the server restarts" {
			t.Errorf("the drain closed with %q", bob.close)
		}
	})
}

// Who enters a room is shown its last messages. Who comes back is shown what was said since, and
// told if some of that is lost.
func TestHistory(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		ann := byLines(t, w.Server, "ann")
		for _, s := range []string{"1", "2", "3", "4"} {
			ann.say(s)
		}
		ann.heard()
		at := time.Now().UTC().Format("[15:04] ")
		bob := bySocket(t, w.Server, "?nick=bob")
		bob.say("/join lobby")
		bob.wants(fmt.Sprintf("* in lobby: ann, bob\n%[1]s<ann> 2\n%[1]s<ann> 3\n%[1]s<ann> 4\n* bob has joined lobby\n", at))
		ann.say("5")
		w.Sleep(moment)
		var place string
		for _, e := range bob.events(bob.Received()) {
			place = e.N
		}
		bob.Close()
		ann.say("6")
		ann.heard()
		for since, want := range map[string]string{place: at + "<ann> 6\n", "1-1": "* some of what was said here is lost\n"} {
			back := bySocket(t, w.Server, "?nick=bob")
			back.Close()
			back = &member{Peer: w.OpenTo(0), srv: w.Server, t: t, socket: true}
			back.Send("GET /ws?nick=bob&room=lobby&since=" + since + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			w.Sleep(moment)
			_, rest, _ := strings.Cut(back.Received(), "\r\n\r\n")
			var lines strings.Builder
			for _, e := range back.events(rest) {
				lines.WriteString(e.line() + "\n")
			}
			contains(t, lines.String(), want)
			if since == place && strings.Contains(lines.String(), "<ann> 5") {
				t.Errorf("since %s: got %q, which bob has seen", since, lines.String())
			}
			back.Close()
		}
	})
}

// A room is forgotten when nobody was there for -keep, and Redis holds nothing of it any more. One
// with somebody in it stays.
func TestRoomsAreForgotten(t *testing.T) {
	inMemory(t, func(o *options) { o.keep = 3 * time.Hour }, func(t *testing.T, w *world) {
		ann := byLines(t, w.Server, "ann")
		for i := range 30 {
			ann.say(fmt.Sprintf("/join den%d", i))
			ann.say("secret")
			w.Sleep(time.Second)
		}
		ann.say("/join lobby")
		stays := func(d time.Duration) {
			for ; d > 0; d -= 5 * time.Minute {
				w.pass(5 * time.Minute)
				ann.say("/who") // or she is sent away
			}
			ann.heard()
		}
		left := func() (n int) {
			for _, key := range w.redis.Keys() {
				if strings.Contains(key, "den") {
					n++
				}
			}
			rooms, _ := w.redis.ZMembers(seenKey)
			said, _ := w.redis.HKeys(saidKey)
			for _, name := range append(rooms, said...) {
				if strings.HasPrefix(name, "den") {
					n++
				}
			}
			return n
		}
		if got := left(); got < 90 {
			t.Errorf("%d traces of 30 rooms, want a stream, a place and a count of each", got)
		}
		stays(2 * time.Hour)
		ann.say("/join den0")
		w.Sleep(time.Second)
		contains(t, ann.heard(), "<ann> secret") // it was there
		stays(90 * time.Minute)
		if rooms, _ := w.redis.ZMembers(seenKey); !slices.Equal(rooms, []string{"lobby", "den0"}) {
			t.Errorf("got %q, want lobby, and den0, which was visited last", rooms)
		}
		ann.say("/join lobby")
		stays(4 * time.Hour)
		if got := left(); got != 0 {
			t.Errorf("%d traces, want none: %q", got, w.redis.Keys())
		}
		ann.say("/list")
		ann.wants("* rooms: lobby (1)\n")
		ann.say("/quit")
		ann.heard()
		w.pass(30 * time.Hour)
		for _, key := range w.redis.Keys() {
			if key == seenKey || key == saidKey || strings.Contains(key, "lobby") {
				t.Errorf("%s stays, of rooms that nobody is in", key)
			}
		}
	})
}

// There are no more rooms than -rooms, in all processes. A user who asks for one
// more stays in the current room and sees why.
func TestNumberOfRooms(t *testing.T) {
	inMemory(t, func(o *options) { o.rooms, o.keep = 3, time.Hour }, func(t *testing.T, w *world) {
		other := w.process()
		ann, bob := byLines(t, w.Server, "ann"), byLines(t, other, "bob")
		ann.say("/join one")
		ann.heard()
		bob.heard()
		bob.say("/join two")
		const refused = " cannot be entered: there are too many rooms already; /list has those to go to\n"
		bob.wants("* in two: bob\n* bob has joined two\n")
		bob.say("/join three")
		bob.wants("* three" + refused)
		bob.say("still here")
		bob.wants("<bob> still here\n")
		bob.say("/join one")
		bob.wants("* in one: ann, bob\n* bob has joined one\n")
		page := bySocket(t, w.Server, "?nick=carl")
		page.say("/join three")
		page.wants("* three" + refused + "* you are in no room; /join one\n")
		page.say("/join two")
		page.wants(time.Now().UTC().Format("* in two: carl\n[15:04] <bob> still here\n* carl has joined two\n"))
		page.Close()
		for range 13 { // nobody is in the lobby, and in two
			w.pass(5 * time.Minute)
			ann.say("hi")
			bob.say("hi")
		}
		bob.heard()
		bob.say("/join three")
		bob.wants("* in three: bob\n* bob has joined three\n")
	})
}

// What has more characters than a message may have is not cut, but refused as a whole.
func TestLengthOfMessages(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		lines, page := byLines(t, w.Server, "ann"), bySocket(t, w.Server, "?nick=bob&room=lobby")
		for _, letter := range []string{"x", "é", "ङ", "😀"} {
			for _, m := range []*member{lines, page} {
				name := map[*member]string{lines: "ann", page: "bob"}[m]
				whole := strings.Repeat(letter, maxText)
				lines.heard()
				m.say(whole)
				lines.wants(fmt.Sprintf("<%s> %s\n", name, whole))
				m.heard()
				m.say("/msg bob " + whole + letter)
				m.say(whole + letter)
				refused := fmt.Sprintf("* nobody has heard %.40q: a message has at most 1000 characters, this one has 1001\n", whole)
				m.wants(refused + refused)
				lines.wants("")
				w.Sleep(time.Second) // or it is a flood
			}
		}
		page.say("/id 7 " + strings.Repeat("é", 2000))
		w.Sleep(moment)
		if got := page.events(page.Received()); len(got) != 1 || got[0].Type != "unsaid" || got[0].ID != "7" {
			t.Errorf("got %+v, want one that is unsaid, by its id", got)
		}
	})
}

// What Redis does not take is kept for half a minute, and then reported to who said it.
func TestRedisGoesAway(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		ann, bob := byLines(t, w.Server, "ann"), bySocket(t, w.Server, "?nick=bob&room=lobby")
		ann.heard()
		w.redis.SetError("LOADING it is away")
		bob.say("/id 1 held")
		w.Sleep(10 * time.Second)
		w.redis.SetError("")
		w.Sleep(5 * time.Second)
		ann.wants("<bob> held\n")
		bob.heard()
		w.redis.SetError("LOADING it is away")
		bob.say("/id 2 lost")
		bob.say("/msg ann lost, too")
		bob.say("/join other")
		bob.say("/rooms")
		w.Sleep(40 * time.Second)
		got := bob.heard()
		contains(t, got, `* nobody has heard "lost": `)
		contains(t, got, `* nobody has heard "lost, too": `)
		contains(t, got, "* other cannot be entered: no answer from Redis: ")
		newcomer := bySocket(t, w.Server, "?nick=carl&room=lobby")
		w.Sleep(time.Minute)
		if newcomer.heard(); newcomer.close != "4006 the chat cannot be reached now" {
			t.Errorf("closed with %q, want 4006", newcomer.close)
		}
		w.redis.SetError("")
		w.Sleep(10 * time.Second)
		bob.heard()
		bob.say("again")
		bob.wants("<bob> again\n")
	})
}

// The sender of a message that Redis may have learns that somebody may have heard it.
func TestPerhapsUnsaid(t *testing.T) {
	for err, want := range map[error]string{
		redisgroup.ErrTimeout:                          `* nobody has heard "hi": ` + redisgroup.ErrTimeout.Error() + "\n",
		fmt.Errorf("%w: EOF", redisgroup.ErrUncertain): `* perhaps nobody has heard "hi": ` + redisgroup.ErrUncertain.Error() + ": EOF\n",
	} {
		inMemory(t, nil, func(t *testing.T, w *world) {
			ann := byLines(t, w.Server, "ann")
			ann.heard()
			w.Do(0, func(l *loop.Loop) {
				for c := range l.Conns() {
					unsaid(c, event{Text: "hi"}, err)
				}
			})
			ann.wants(want)
		})
	}
}

// A page that leaves a room before its message is back learns that Redis has it.
func TestMessageOfOneWhoLeaves(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		bob := bySocket(t, w.Server, "?nick=bob&room=lobby")
		bob.say("/id 1 goodbye")
		bob.say("/id 2 /leave")
		w.Sleep(moment)
		acked := make(map[string]bool)
		for _, e := range bob.events(bob.Received()) {
			if e.Type == "ack" {
				acked[e.ID] = true
			}
		}
		if !acked["1"] || !acked["2"] {
			t.Errorf("told of %v, want 1 and 2", acked)
		}
	})
}

// Who says nothing is sent away at its time. Pongs keep a connection, and say nothing of a reader.
func TestIdle(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		ann, bob, talks := byLines(t, w.Server, "ann"), bySocket(t, w.Server, "?nick=bob"), byLines(t, w.Server, "talks")
		ann.heard()
		bob.pongs = true
		for range 10 {
			w.Sleep(time.Minute - time.Second)
			bob.heard()
			talks.say("still here")
		}
		if ann.Ended() || bob.Ended() {
			t.Error("somebody was sent away before the time")
		}
		w.Sleep(10 * time.Second)
		contains(t, ann.heard(), "* you said nothing for 10m0s: goodbye\n")
		if !ann.Ended() {
			t.Error("ann is still here")
		}
		if bob.heard(); !bob.Ended() || bob.close != "4000 you said nothing for 10m0s" {
			t.Errorf("bob was closed with %q", bob.close)
		}
		if talks.Ended() {
			t.Error("somebody who talks was sent away")
		}
	})
}

func TestDeadAndFlood(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, w *world) {
		dead, floods := bySocket(t, w.Server, "?nick=dead&room=lobby"), bySocket(t, w.Server, "?nick=floods&room=lobby")
		floods.pongs = true
		for range 22 {
			floods.say("spam")
		}
		if floods.heard(); !errors.Is(floods.Reason(), handler.ErrRateLimit) || floods.close != "4002 too many messages at once" {
			t.Errorf("flood: closed with %v, %q", floods.Reason(), floods.close)
		}
		contains(t, dead.heard(), "* floods has left lobby\n")
		w.Sleep(4 * time.Minute)
		if dead.heard(); !errors.Is(dead.Reason(), handler.ErrHeartbeat) || dead.close != "4001 no answer to pings" {
			t.Errorf("dead: closed with %v, %q", dead.Reason(), dead.close)
		}
	})
}

func TestPage(t *testing.T) {
	also := func(o *options) { o.also = []string{"http://127.0.0.1:8081"} }
	inMemory(t, also, func(t *testing.T, w *world) {
		for request, want := range map[string]string{
			"GET / HTTP/1.1":            "HTTP/1.1 200 OK",
			"GET /chat.js HTTP/1.1":     "HTTP/1.1 200 OK",
			"GET /favicon.ico HTTP/1.1": "HTTP/1.1 404 Not Found",
		} {
			p := w.OpenTo(0)
			p.Send(request + "\r\nHost: x\r\n\r\n")
			got := p.Received()
			contains(t, got, want)
			contains(t, got, "script-src 'self'; ") // no other script runs
			contains(t, got, "connect-src 'self' ws://127.0.0.1:8081\r\n")
			if !errors.Is(p.Reason(), websocket.ErrHTTP) {
				t.Errorf("%s: closed with %v", request, p.Reason())
			}
		}
	})
}

// Bad input is answered, and logged with the reason.
func TestBadInput(t *testing.T) {
	var log bytes.Buffer
	inMemory(t, func(o *options) { o.logger = zerolog.New(&log) }, func(t *testing.T, w *world) {
		const upgrade = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
		for _, tc := range []struct{ request, status, logged string }{
			{"GET /ws HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Version: 13\r\nOrigin: https://evil.example\r\n\r\n", "HTTP/1.1 403 ", "evil.example"},
			{"GET /ws HTTP/1.1\r\n" + upgrade + "Sec-WebSocket-Version: 7\r\n\r\n", "HTTP/1.1 426 ", "426"},
		} {
			log.Reset()
			p := w.OpenTo(0)
			p.Send(tc.request)
			contains(t, p.Received(), tc.status)
			contains(t, log.String(), tc.logged)
		}
		for frame, want := range map[string]string{
			"\x81\x01x":            "1002 ",
			"\x83\x80mask":         "1002 ",
			"\x81\x81mask\x92":     "1007 ", // 0x92 ^ 'm' is 0xff
			"\x81\xfe\x50\x00m":    "",      // not all of the header yet
			"\x81\xfe\x50\x00mask": "1009 ",
		} {
			log.Reset()
			m := bySocket(t, w.Server, "?room=lobby")
			m.Send(frame)
			if m.heard(); m.close != want {
				t.Errorf("%q: closed with %q, want %q", frame, m.close, want)
			}
			contains(t, log.String(), strings.TrimSpace(want))
		}
		for query, want := range map[string]string{
			"?nick=a%E2%80%8Bb":  "4005 " + errName.Error(),
			"?nick=ann&room=a+b": "4005 a name has no spaces, commas and slashes",
		} {
			if m := bySocket(t, w.Server, query); m.close != want {
				t.Errorf("%s: closed with %q, want %q", query, m.close, want)
			}
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
}
