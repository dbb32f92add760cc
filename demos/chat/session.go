package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	lobby  = "lobby"
	maxKey = 64 // bytes
)

// A session is the handler of one connection, whichever port it came to. It lives on the
// connection's loop, and so needs no lock.
type session struct {
	chat *chat
	c    *loop.Conn
	nick string // "" until the session is open
	key  string // a secret of the page, by which it gets its nickname back
	room string // or ""

	local  *room               // that room, in a localHouse
	shared *redisgroup.Ordered // in a sharedHouse

	wants     string // the nickname that is being claimed
	name      string // the nickname that was claimed last, in a shared house
	line      string // what the page calls the line that is being taken
	asked     bool   // for the list of rooms
	reminders int
	idle      loop.Timer
	until     time.Time // when the idle timer fires
}

// errElsewhere closes a connection whose page has made another.
var errElsewhere = &websocket.CloseError{Code: closedGhost, Reason: "you have come back on another connection"}

// acceptLines greets at once: who connects to the lines' port is here.
func (ch *chat) acceptLines(c *loop.Conn) loop.Handler {
	s := &session{chat: ch, c: c}
	s.open("", lobby, "")
	return s
}

// acceptSocket waits for the handshake: the connection may only fetch the page.
func (ch *chat) acceptSocket(c *loop.Conn) loop.Handler {
	s := &session{chat: ch, c: c}
	w := websocket.Of(c)
	w.OnOpen = func(r *http.Request) error {
		q := r.URL.Query()
		if s.key = q.Get("key"); len(s.key) > maxKey || strings.ContainsFunc(s.key, unicode.IsSpace) {
			s.key = ""
		}
		s.open(q.Get("nick"), q.Get("room"), q.Get("since"))
		return ping(c) // to show the round-trip time
	}
	w.OnPong = s.pong
	return s
}

// open begins the session. A nickname or a room that will not do is told, and ends it; without a
// nickname one is a guest.
func (s *session) open(nick, room, since string) {
	var err error
	guest := nick == ""
	if !guest {
		nick, err = goodName(nick)
	}
	if err == nil && room != "" {
		room, err = goodName(room)
	}
	if err != nil {
		websocket.Close(s.c, closedName, err.Error())
		return
	}
	if guest {
		nick = fmt.Sprintf("guest%d", s.c.ID())
	}
	s.claim(nick, func(err error) { s.claimed(nick, room, since, guest, err) })
}

// claim claims a nickname of the house. What is said meanwhile waits.
func (s *session) claim(nick string, then func(err error)) {
	done := false
	s.wants = nick
	s.chat.house.claim(s, nick, func(err error) {
		done, s.wants = true, ""
		s.c.ResumeRead()
		then(err)
	})
	if !done {
		s.c.PauseRead()
	}
}

// claimed goes on when it is known whether the nickname can be had.
func (s *session) claimed(nick, room, since string, guest bool, err error) {
	switch {
	case errors.Is(err, errTaken) && guest:
		s.open(fmt.Sprintf("guest%d", 1000+rand.IntN(999000)), room, since)
	case errors.Is(err, errTaken):
		websocket.Close(s.c, closedName, fmt.Sprintf("%s is somebody else, or looks like somebody else", nick))
	case err != nil:
		websocket.Close(s.c, closedLater, "the chat is not to be reached now")
	default:
		s.nick = nick
		s.greet()
		if room != "" {
			s.join(room, since)
		}
	}
}

func (s *session) greet() {
	s.until = time.Now().Add(s.chat.opt.idle)
	s.idle = s.c.AfterFunc(s.chat.opt.idle, s.kick)
	send(s.c, event{
		Type: "hello", From: s.nick, Loop: s.c.Loop().Index() + 1, At: now(), Full: s.chat.opt.idle.Milliseconds(), Also: s.chat.opt.also,
		Text: fmt.Sprintf("welcome, %s; /help tells what you can do, and after %v of silence you are kicked", s.nick, s.chat.opt.idle),
	})
}

// OnMessage takes a command, or something to say.
func (s *session) OnMessage(_ *loop.Conn, msg []byte) error {
	if s.nick == "" {
		return nil // it was refused
	}
	text := clean(string(msg))
	s.line = ""
	if rest, ok := strings.CutPrefix(text, "/id "); ok {
		s.line, text, _ = strings.Cut(rest, " ")
	}
	if text == "" {
		return nil
	}
	if s.line != "" && (text[0] == '/' || s.room == "") {
		send(s.c, event{Type: "ack", ID: s.line}) // what is said in a room comes back with its name
	}
	if text[0] != '/' {
		s.alive()
		s.say(text)
		return nil
	}
	name, arg, _ := strings.Cut(text[1:], " ")
	cmd, ok := commands[name]
	if !ok {
		note(s.c, "there is no /%s; try /help", name)
		return nil
	}
	if !cmd.quiet {
		s.alive()
	}
	return cmd.run(s, strings.TrimSpace(arg))
}

// alive puts off the kick: the timer moves on the loop's wheel.
func (s *session) alive() {
	s.until = time.Now().Add(s.chat.opt.idle)
	s.idle.Reset(s.chat.opt.idle)
}

// kick is what the idle timer does. A pong is no sign of somebody who reads, so it does not put
// this off.
func (s *session) kick() {
	reason := fmt.Sprintf("you said nothing for %v", s.chat.opt.idle)
	if websocket.Of(s.c) == nil { // a browser is told by the close frame
		note(s.c, "%s: goodbye", reason)
	}
	s.chat.kicked.Add(1)
	s.c.CloseWithError(&websocket.CloseError{Code: closedIdle, Reason: reason})
}

// left returns how long it is until the kick.
func (s *session) left() int64 { return max(1, time.Until(s.until).Milliseconds()) }

func (s *session) say(text string) {
	if s.room == "" {
		note(s.c, "you are in no room; /join one")
		return
	}
	s.chat.said.Add(1)
	s.chat.house.say(s, event{Type: "say", Room: s.room, From: s.nick, Text: text, At: now(), ID: s.line})
}

func (s *session) join(name, since string) {
	if s.room == name {
		note(s.c, "you are in %s already", name)
		return
	}
	s.leave("")
	s.room = name
	s.chat.house.join(s, name, since)
}

func (s *session) leave(why string) {
	if s.room == "" {
		return
	}
	s.room = ""
	s.chat.house.leave(s, why)
}

// pong shows the round-trip time of the ping that carried data, and when the kick is due.
func (s *session) pong(data []byte) {
	sent, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil || s.nick == "" {
		return
	}
	send(s.c, event{Type: "pong", RTT: float64(time.Since(sent).Microseconds()) / 1000, Idle: s.left()})
}

// OnClose says goodbye to the others. A connection that only fetched the page has no session.
func (s *session) OnClose(c *loop.Conn, err error) {
	if s.wants != "" {
		s.chat.house.release(s, s.wants)
	}
	if s.nick == "" {
		return // a bad handshake is logged by the server, as all bad input is
	}
	switch {
	case errors.Is(err, handler.ErrHeartbeat):
		s.chat.dead.Add(1)
	case errors.Is(err, handler.ErrRateLimit):
		s.chat.flooded.Add(1)
	}
	defer s.chat.house.release(s, s.nick) // also if leaving panics: the name must not be taken for ever
	s.leave(farewell(err))
	c.Log().Info().Str("nick", s.nick).AnErr("reason", err).Msg("gone")
}

// farewell is what the others are told.
func farewell(err error) string {
	closed, ok := errors.AsType[*websocket.CloseError](err)
	switch {
	case ok && closed.Code == closedIdle:
		return "(kicked: idle)"
	case errors.Is(err, handler.ErrRateLimit):
		return "(kicked: flood)"
	case errors.Is(err, handler.ErrHeartbeat):
		return "(connection lost)"
	}
	return ""
}
