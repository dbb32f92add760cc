package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

const (
	maxReminder  = 24 * time.Hour // the longest time that one may ask to be reminded after
	maxReminders = 10             // that one may have pending
)

// A command is what begins with a slash.
type command struct {
	usage string // "" for what only the page needs
	quiet bool   // is no sign of life
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
		"rooms":  {quiet: true, run: (*session).cmdRooms},
		"typing": {quiet: true, run: (*session).cmdTyping},
		"beat":   {quiet: true, run: (*session).cmdBeat},
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
	s.join(name, "")
	return nil
}

func (s *session) cmdLeave(string) error {
	s.leave("")
	send(s.c, event{Type: "who"})
	return nil
}

func (s *session) cmdWho(string) error {
	if s.room == "" {
		note(s.c, "you are in no room; /join one")
		return nil
	}
	s.chat.house.who(s)
	return nil
}

func (s *session) cmdList(string) error {
	s.asked = true
	s.chat.house.list(s)
	return nil
}

// cmdRooms is what the page asks now and then, to count what is unread.
func (s *session) cmdRooms(string) error {
	s.asked = false
	s.chat.house.list(s)
	return nil
}

func (s *session) cmdNick(arg string) error {
	name, err := goodName(arg)
	if err != nil {
		note(s.c, "%v", err)
		return nil
	}
	old := s.nick
	s.claim(name, func(err error) {
		switch {
		case errors.Is(err, errTaken):
			note(s.c, "%s is somebody else, or looks like somebody else", name)
		case err != nil:
			note(s.c, "the name cannot be had now: %v", err)
		default:
			s.nick = name
			s.renamed(old)
		}
	})
	return nil
}

func (s *session) renamed(old string) {
	if s.room != "" {
		s.chat.house.renamed(s, old)
	} else {
		send(s.c, event{Type: "nick", From: old, To: s.nick})
	}
}

func (s *session) cmdMsg(arg string) error {
	to, text, _ := strings.Cut(arg, " ")
	if to == "" || strings.TrimSpace(text) == "" {
		note(s.c, "/msg NAME TEXT, where NAME is somebody who is here")
		return nil
	}
	s.chat.house.private(s, event{Type: "private", From: s.nick, To: to, Text: strings.TrimSpace(text), At: now(), ID: s.line})
	return nil
}

// cmdTyping tells the others that one types.
func (s *session) cmdTyping(string) error {
	if s.room != "" {
		s.chat.house.typing(s)
	}
	return nil
}

// cmdBeat answers the page's own heartbeat.
func (s *session) cmdBeat(arg string) error {
	send(s.c, event{Type: "beat", ID: arg})
	return nil
}

// cmdRemind keeps count, so that nobody asks for too much; the house does the rest.
func (s *session) cmdRemind(arg string) error {
	in, text, _ := strings.Cut(arg, " ")
	d, err := time.ParseDuration(in)
	if err != nil || d <= 0 || d > maxReminder {
		note(s.c, "/remind 10s TEXT, of at most %v", maxReminder)
		return nil
	}
	if s.reminders == maxReminders {
		note(s.c, "you have %d reminders pending already", maxReminders)
		return nil
	}
	s.reminders++
	s.c.AfterFunc(d, func() { s.reminders-- })
	s.chat.house.remind(s, d, text)
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
		if c.usage != "" {
			usages = append(usages, c.usage)
		}
	}
	slices.Sort(usages)
	note(s.c, "%s", strings.Join(usages, ", "))
	return nil
}
