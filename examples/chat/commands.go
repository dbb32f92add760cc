package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// maxReminder is the longest time that one may ask to be reminded after.
const maxReminder = 24 * time.Hour

// A command is what begins with a slash.
type command struct {
	usage string
	quiet bool // is no sign of life
	run   func(s *session, arg string) error
}

var commands map[string]command

func init() { // as /help lists them all
	commands = map[string]command{
		"join":   {usage: "/join ROOM", run: (*session).cmdJoin},
		"leave":  {usage: "/leave", run: (*session).cmdLeave},
		"who":    {usage: "/who", run: (*session).cmdWho},
		"list":   {usage: "/list (of rooms)", run: (*session).cmdList},
		"nick":   {usage: "/nick NAME", run: (*session).cmdNick},
		"msg":    {usage: "/msg NAME TEXT", run: (*session).cmdMsg},
		"remind": {usage: "/remind 10s TEXT", run: (*session).cmdRemind},
		"idle":   {usage: "/idle (until you are kicked)", quiet: true, run: (*session).cmdIdle},
		"watch":  {usage: "/watch on|off (the server; shown on the page)", quiet: true, run: (*session).cmdWatch},
		"quit":   {usage: "/quit", run: (*session).cmdQuit},
		"help":   {usage: "/help", run: (*session).cmdHelp},
	}
}

func (s *session) cmdJoin(arg string) error {
	name, err := goodName(arg)
	if err != nil {
		note(s.c, "%v", err)
		return nil
	}
	s.join(name)
	return nil
}

func (s *session) cmdLeave(string) error {
	s.leave("")
	send(s.c, event{Type: "who"})
	return nil
}

func (s *session) cmdWho(string) error {
	if s.room == nil {
		note(s.c, "you are in no room; /join one")
		return nil
	}
	send(s.c, event{Type: "who", Room: s.room.name, Names: s.room.members()})
	return nil
}

func (s *session) cmdList(string) error {
	var names []string
	for _, r := range s.chat.rooms.all() {
		if n := r.group.Len(); n > 0 {
			names = append(names, fmt.Sprintf("%s (%d)", r.name, n))
		}
	}
	slices.Sort(names)
	send(s.c, event{Type: "rooms", Names: names})
	return nil
}

func (s *session) cmdNick(arg string) error {
	name, err := goodName(arg)
	if err != nil {
		note(s.c, "%v", err)
		return nil
	}
	lower, old := strings.ToLower(name), s.nick
	if lower != strings.ToLower(old) {
		if !s.chat.nicks.add(lower, s.c.Ref()) {
			note(s.c, "%s is somebody else", name)
			return nil
		}
		s.chat.nicks.remove(strings.ToLower(old))
	}
	s.nick = name
	if s.room != nil {
		s.room.rename(s.c, old, name)
	} else {
		send(s.c, event{Type: "nick", From: old, To: name})
	}
	return nil
}

func (s *session) cmdMsg(arg string) error {
	to, text, _ := strings.Cut(arg, " ")
	ref, ok := s.chat.nicks.get(strings.ToLower(to))
	if !ok || strings.TrimSpace(text) == "" {
		note(s.c, "/msg NAME TEXT, where NAME is somebody who is here")
		return nil
	}
	e := event{Type: "private", From: s.nick, To: to, Text: strings.TrimSpace(text), At: now()}
	if err := ref.Tell(func(c *loop.Conn) { send(c, e) }); err != nil {
		note(s.c, "%s cannot be reached: %v", to, err)
		return nil
	}
	send(s.c, e)
	return nil
}

// cmdRemind is a timer of the connection: it dies with it.
func (s *session) cmdRemind(arg string) error {
	in, text, _ := strings.Cut(arg, " ")
	d, err := time.ParseDuration(in)
	if err != nil || d <= 0 || d > maxReminder {
		note(s.c, "/remind 10s TEXT, of at most %v", maxReminder)
		return nil
	}
	s.c.AfterFunc(d, func() { send(s.c, event{Type: "remind", Text: "reminder: " + text, At: now()}) })
	note(s.c, "in %v", d)
	return nil
}

func (s *session) cmdIdle(string) error {
	send(s.c, event{Type: "idle", Idle: s.left(), Full: s.chat.opt.idle.Milliseconds()})
	return nil
}

func (s *session) cmdWatch(arg string) error {
	if arg == "off" {
		s.chat.watchers.Leave(s.c)
	} else {
		s.chat.watchers.Join(s.c)
	}
	return nil
}

func (s *session) cmdQuit(string) error {
	websocket.Close(s.c, closedQuit, "goodbye")
	return nil
}

func (s *session) cmdHelp(string) error {
	var usages []string
	for _, c := range commands {
		usages = append(usages, c.usage)
	}
	slices.Sort(usages)
	note(s.c, "%s", strings.Join(usages, ", "))
	return nil
}
