package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	lobby   = "lobby"
	maxKey  = 64   // bytes
	maxText = 1000 // characters of a message; the page knows it
)

// A session is the handler of one connection, whichever port it came to. It lives on the
// connection's loop, and so needs no lock.
type session struct {
	chat *chat
	c    *loop.Conn
	nick string              // "" until the session is open
	key  string              // a secret of the page, by which it gets its nickname back
	room *redisgroup.Ordered // or nil

	line  string // what the page calls the line that is being taken
	idle  loop.Timer
	until time.Time // when the idle timer fires
}

var errGhost = &websocket.CloseError{Code: closedGhost, Reason: "somebody else has your name now"}

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

// open begins the session. A nickname or a room that will not do ends it; without a nickname one is
// a guest.
func (s *session) open(nick, room, since string) {
	guest, err := nick == "", error(nil)
	if guest {
		nick = fmt.Sprintf("guest%d", rand.IntN(1_000_000))
	} else {
		nick, err = goodName(nick)
	}
	if err == nil && room != "" {
		room, err = goodName(room)
	}
	if err != nil {
		websocket.Close(s.c, closedName, err.Error())
		return
	}
	s.claim(nick, func(err error) {
		switch {
		case errors.Is(err, redisgroup.ErrTaken) && guest:
			s.open("", room, since)
		case errors.Is(err, redisgroup.ErrTaken):
			websocket.Close(s.c, closedName, nick+" is somebody else")
		case err != nil:
			websocket.Close(s.c, closedLater, "the chat cannot be reached now")
		default:
			s.greet()
			if room != "" {
				s.join(room, since)
			}
		}
	})
}

func (s *session) greet() {
	s.until = time.Now().Add(s.chat.opt.idle)
	s.idle = s.c.AfterFunc(s.chat.opt.idle, s.kick)
	send(s.c, event{
		Type: "hello", From: s.nick, At: now(), Full: s.chat.opt.idle.Milliseconds(), Also: s.chat.opt.also,
		Text: fmt.Sprintf("welcome, %s; /help lists what you can do, and after %v of silence you are sent away", s.nick, s.chat.opt.idle),
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
	if text[0] != '/' {
		s.alive()
		s.says(event{Type: "say", Text: text})
		return nil
	}
	name, arg, _ := strings.Cut(text[1:], " ")
	cmd, ok := commands[name]
	if !ok {
		note(s.c, "there is no /%s; try /help", name)
	}
	if s.line != "" && name != "msg" { // what is said comes back with its name, or as unsaid
		send(s.c, event{Type: "ack", ID: s.line})
	}
	if !ok {
		return nil
	}
	if cmd.usage != "" {
		s.alive()
	}
	cmd.run(s, strings.TrimSpace(arg))
	return nil
}

// says sends a message to the room, or to one user.
func (s *session) says(e event) {
	e.From, e.At, e.ID = s.nick, now(), s.line
	switch n := utf8.RuneCountInString(e.Text); {
	case n > maxText:
		unsaid(s.c, e, fmt.Errorf("a message has at most %d characters, this one has %d", maxText, n))
	case e.To != "":
		s.whisper(e)
	case s.room == nil:
		unsaid(s.c, e, errors.New("you are in no room; /join one"))
	default:
		e.Room = s.room.Name()
		s.say(e)
	}
}

// alive puts off the kick: the timer moves on the loop's wheel.
func (s *session) alive() {
	s.until = time.Now().Add(s.chat.opt.idle)
	s.idle.Reset(s.chat.opt.idle)
	if s.room != nil {
		s.chat.touch(s.room.Name(), 0)
	}
}

// kick is what the idle timer does. A pong is no sign of somebody who reads, so it does not put
// this off.
func (s *session) kick() {
	reason := fmt.Sprintf("you said nothing for %v", s.chat.opt.idle)
	if websocket.Of(s.c) == nil { // a browser gets the reason in the close frame
		note(s.c, "%s: goodbye", reason)
	}
	s.c.CloseWithError(&websocket.CloseError{Code: closedIdle, Reason: reason})
}

// left returns how many milliseconds it is until the kick.
func (s *session) left() int64 { return max(1, time.Until(s.until).Milliseconds()) }

// pong shows the round-trip time of the ping that carried data, and when the kick is due.
func (s *session) pong(data []byte) {
	sent, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil || s.nick == "" {
		return
	}
	send(s.c, event{Type: "pong", RTT: float64(time.Since(sent).Microseconds()) / 1000, Idle: s.left()})
}

// OnClose logs who has gone. The hub ends what the connection had: its rooms, and its nickname.
func (s *session) OnClose(c *loop.Conn, err error) {
	if s.nick != "" { // a bad handshake is logged by the server, as all bad input is
		c.Log().Info().Str("nick", s.nick).AnErr("reason", err).Msg("gone")
	}
}

// A command is what begins with a slash.
type command struct {
	usage string // "" for what only the page needs, and which is no sign of life
	run   func(s *session, arg string)
}

var commands map[string]command

func init() { // as /help lists them all
	commands = map[string]command{
		"join":   {"/join ROOM", (*session).cmdJoin},
		"leave":  {"/leave", func(s *session, _ string) { s.leave(); send(s.c, event{Type: "who"}) }},
		"who":    {"/who", (*session).cmdWho},
		"list":   {"/list (of rooms)", func(s *session, _ string) { s.list(true) }},
		"nick":   {"/nick NAME", (*session).cmdNick},
		"msg":    {"/msg NAME TEXT", (*session).cmdMsg},
		"quit":   {"/quit", func(s *session, _ string) { websocket.Close(s.c, closedQuit, "goodbye") }},
		"help":   {"/help", (*session).cmdHelp},
		"rooms":  {"", func(s *session, _ string) { s.list(false) }},
		"typing": {"", func(s *session, _ string) { s.typing() }},
		"beat":   {"", func(s *session, arg string) { send(s.c, event{Type: "beat", ID: arg}) }},
	}
}

func (s *session) cmdJoin(arg string) {
	name, err := goodName(arg)
	if err != nil {
		note(s.c, "%v", err)
		return
	}
	s.join(name, "")
}

func (s *session) cmdWho(string) {
	if s.room == nil {
		note(s.c, "you are in no room; /join one")
		return
	}
	o := s.room
	ask(s, func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, askWithin)
		defer cancel()
		return o.Who(ctx)
	}, func(names []string, err error) {
		if err != nil {
			note(s.c, "who is here cannot be told now: %v", err)
			return
		}
		slices.Sort(names)
		send(s.c, event{Type: "who", Room: o.Name(), Names: names, Asked: true})
	})
}

// list lists the rooms: for one who has asked, or for a page that counts what is unread.
func (s *session) list(asked bool) {
	ask(s, s.chat.list, func(rooms []roomInfo, err error) {
		if err == nil {
			send(s.c, event{Type: "rooms", Rooms: rooms, Asked: asked})
		} else if asked {
			note(s.c, "the rooms cannot be listed now: %v", err)
		}
	})
}

func (s *session) cmdNick(arg string) {
	name, err := goodName(arg)
	if err != nil {
		note(s.c, "%v", err)
		return
	}
	old := s.nick
	s.claim(name, func(err error) {
		switch {
		case errors.Is(err, redisgroup.ErrTaken):
			note(s.c, "%s is somebody else", name)
		case err != nil:
			note(s.c, "the name cannot be had now: %v", err)
		case s.room != nil:
			s.say(event{Type: "nick", Room: s.room.Name(), From: old, To: s.nick, At: now()})
		default:
			send(s.c, event{Type: "nick", From: old, To: s.nick})
		}
	})
}

func (s *session) cmdMsg(arg string) {
	to, text, _ := strings.Cut(arg, " ")
	name, err := goodName(to)
	if text = strings.TrimSpace(text); err != nil || text == "" {
		unsaid(s.c, event{ID: s.line, Text: arg}, errors.New("/msg NAME TEXT, where NAME is somebody who is here"))
		return
	}
	s.says(event{Type: "private", To: name, Text: text})
}

func (s *session) cmdHelp(string) {
	var usages []string
	for _, c := range commands {
		if c.usage != "" {
			usages = append(usages, c.usage)
		}
	}
	slices.Sort(usages)
	note(s.c, "%s", strings.Join(usages, ", "))
}
