package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	lobby   = "lobby"
	maxName = 24 // characters of a nickname or a room's name
)

// A session is the handler of one connection, whichever port it came to. It lives on the connection's loop, and so needs
// no lock.
type session struct {
	chat  *chat
	c     *loop.Conn
	nick  string // "" until the session is open
	room  *room  // or nil
	idle  loop.Timer
	until time.Time // when the idle timer fires
}

// acceptLines greets at once: who connects to the lines' port is here.
func (ch *chat) acceptLines(c *loop.Conn) loop.Handler {
	s := &session{chat: ch, c: c}
	s.open("", lobby)
	return s
}

// acceptSocket waits for the handshake: the connection may only fetch the page.
func (ch *chat) acceptSocket(c *loop.Conn) loop.Handler {
	s := &session{chat: ch, c: c}
	w := websocket.Of(c)
	w.OnOpen = func(r *http.Request) error {
		q := r.URL.Query()
		s.open(q.Get("nick"), q.Get("room"))
		return ping(c) // to show the round-trip time
	}
	w.OnPong = s.pong
	websocket.OpenWithin(c, openTimeout)
	return s
}

// open begins the session, with the wanted nickname if nobody has it, in a room if that has a good name.
func (s *session) open(nick, roomName string) {
	s.nick = s.claim(nick)
	s.until = time.Now().Add(s.chat.opt.idle)
	s.idle = s.c.AfterFunc(s.chat.opt.idle, s.kick)
	send(s.c, event{
		Type: "hello", From: s.nick, Loop: s.c.Loop().Index() + 1, At: now(), Full: s.chat.opt.idle.Milliseconds(),
		Text: fmt.Sprintf("welcome, %s; /help tells what you can do, and after %v of silence you are kicked", s.nick, s.chat.opt.idle),
	})
	if roomName, err := goodName(roomName); err == nil {
		s.join(roomName)
	}
}

// claim takes the nickname, or one like it that is free.
func (s *session) claim(nick string) string {
	nick, err := goodName(nick)
	if err != nil {
		nick = fmt.Sprintf("guest%d", s.c.ID())
	}
	free := nick
	for n := 2; !s.chat.nicks.add(strings.ToLower(free), s.c.Ref()); n++ {
		free = fmt.Sprintf("%s%d", nick, n)
	}
	return free
}

// goodName returns the name without what does no good in one.
func goodName(name string) (string, error) {
	name = strings.TrimPrefix(clean(name), "#")
	switch {
	case name == "":
		return "", errors.New("a name, please")
	case strings.ContainsAny(name, " /,"):
		return "", errors.New("a name without spaces, commas and slashes, please")
	case utf8.RuneCountInString(name) > maxName:
		return "", fmt.Errorf("a name of at most %d characters, please", maxName)
	}
	return name, nil
}

// OnMessage takes a command, or something to say.
func (s *session) OnMessage(_ *loop.Conn, msg []byte) error {
	text := clean(string(msg))
	if text == "" {
		return nil
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

// kick is what the idle timer does. A pong is no sign of somebody who reads, so it does not put this off.
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
	if s.room == nil {
		note(s.c, "you are in no room; /join one")
		return
	}
	s.chat.said.Add(1)
	s.room.say(s.c, s.nick, text)
}

func (s *session) join(name string) {
	if s.room != nil && s.room.name == name {
		note(s.c, "you are in %s already", name)
		return
	}
	s.leave("")
	for {
		s.room = s.chat.rooms.getOrAdd(name, func() *room { return newRoom(name, s.chat.opt.history) })
		if s.room.join(s.c, s.nick) {
			return
		}
	}
}

func (s *session) leave(why string) {
	if s.room == nil {
		return
	}
	r, ch := s.room, s.chat
	s.room = nil
	r.leave(s.c, why, func(visits int) {
		ch.rooms.removeIf(r.name, func(now *room) bool { return now == r && r.forget(visits) })
	})
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
	if s.nick == "" {
		return // a bad handshake is logged by the server, as all bad input is
	}
	switch {
	case errors.Is(err, handler.ErrHeartbeat):
		s.chat.dead.Add(1)
	case errors.Is(err, handler.ErrRateLimit):
		s.chat.flooded.Add(1)
	}
	s.leave(farewell(err))
	s.chat.nicks.remove(strings.ToLower(s.nick))
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
