package main

import (
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/loop"
)

// A command is one that is not about keys: about the connection, or the server.
type command struct {
	name  string // of a subcommand: "client|id"
	arity int    // of arguments, the names included; -n means n at least
	run   func(s *session, args [][]byte)
	subs  []command

	open       bool // before AUTH, too
	subscribed bool // by a client that can only listen, too
	atOnce     bool // in a transaction, too, where others are queued
	never      bool // not in a transaction
}

// sub returns the subcommand of that name, nil if there is none.
func (c *command) sub(name []byte) *command {
	full := c.name + "|" + lower(name)
	for i := range c.subs {
		if c.subs[i].name == full {
			return &c.subs[i]
		}
	}
	return nil
}

var commands map[string]*command

func init() { // the table needs functions that look into it
	commands = make(map[string]*command)
	for _, c := range []command{
		{name: "ping", arity: -1, run: ping, subscribed: true},
		{name: "echo", arity: 2, run: echo},
		{name: "quit", arity: -1, run: quit, open: true, subscribed: true, atOnce: true},
		{name: "reset", arity: 1, run: reset, open: true, subscribed: true, atOnce: true},
		{name: "auth", arity: -2, run: auth, open: true},
		{name: "hello", arity: -1, run: hello, open: true},
		{name: "select", arity: 2, run: selectDB},
		{name: "swapdb", arity: 3, run: swapDB},
		{name: "move", arity: 3, run: moveToDB},
		{name: "client", arity: -2, subs: clientCommands},
		{name: "config", arity: -2, subs: configCommands},
		{name: "command", arity: -1, run: commandTable, subs: commandCommands},
		{name: "info", arity: -1, run: info},
		{name: "time", arity: 1, run: timeCommand},
		{name: "multi", arity: 1, run: multi, atOnce: true},
		{name: "exec", arity: 1, run: execCommand, atOnce: true},
		{name: "discard", arity: 1, run: discard, atOnce: true},
		{name: "watch", arity: -2, run: watch, atOnce: true},
		{name: "unwatch", arity: 1, run: unwatch},
		{name: "subscribe", arity: -2, run: subscribe, subscribed: true},
		{name: "psubscribe", arity: -2, run: psubscribe, subscribed: true},
		{name: "unsubscribe", arity: -1, run: unsubscribe, subscribed: true},
		{name: "punsubscribe", arity: -1, run: punsubscribe, subscribed: true},
		{name: "publish", arity: 3, run: publish},
		{name: "pubsub", arity: -2, subs: pubsubCommands},
		{name: "bgrewriteaof", arity: 1, run: bgrewriteaof},
		{name: "slowlog", arity: -2, subs: slowlogCommands},
		{name: "role", arity: 1, run: role},
		{name: "wait", arity: 3, run: wait},
		{name: "shutdown", arity: -1, run: shutdown, never: true},
	} {
		commands[c.name] = &c
	}
}

func lookup(name []byte) *command { return commands[lower(name)] }

func lower(b []byte) string { return strings.ToLower(string(b)) }

func ping(s *session, args [][]byte) {
	switch {
	case len(args) > 2:
		s.refuse(store.WrongArgs("ping"))
	case s.subs.only(s):
		out := resp.AppendBulk(resp.AppendArray(nil, 2), "pong")
		var text []byte
		if len(args) == 2 {
			text = args[1]
		}
		s.write(resp.AppendBulk(out, text))
	case len(args) == 2:
		s.write(resp.AppendBulk(nil, args[1]))
	default:
		s.write([]byte("+PONG\r\n"))
	}
}

func echo(s *session, args [][]byte) { s.write(resp.AppendBulk(nil, args[1])) }

// quit closes once what was answered has been sent.
func quit(s *session, _ [][]byte) {
	s.ok()
	s.closing = true
	if s.answers.Waiting() > 0 { // what comes behind it is not carried out
		s.waiting = &blocked{cancel: func() {}, expire: func(string) {}}
	}
	s.answers.CloseAfter(nil)
}

func reset(s *session, _ [][]byte) {
	s.multi = nil
	s.unwatch()
	s.shard.pubsub.forget(s)
	s.version, s.name, s.quiet = resp.RESP2, "", replyOn
	s.setAuthed(s.server.config.password() == "")
	s.write(resp.AppendSimple(nil, "RESET"))
}

func (s *session) setAuthed(yes bool) { s.authed, s.requests.Unauthenticated = yes, !yes }

// mayAct reports whether the client has said its password, if there is one now.
func (s *session) mayAct() bool {
	may := s.authed || s.server.config.password() == ""
	s.requests.Unauthenticated = !may
	return may
}

func auth(s *session, args [][]byte) {
	switch {
	case len(args) > 3:
		s.refuse("ERR syntax error")
	case len(args) == 2 && s.server.config.password() == "":
		s.refuse("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case s.login(args[1:]):
		s.ok()
	default:
		s.refuse(errWrongPass)
	}
}

const errWrongPass = "WRONGPASS invalid username-password pair or user is disabled."

// login takes a password, or a user and a password. There is one user.
func (s *session) login(args [][]byte) bool {
	user, password := "default", args[len(args)-1]
	if len(args) == 2 {
		user = string(args[0])
	}
	want := s.server.config.password()
	ok := user == "default" && (want == "" || subtle.ConstantTimeCompare(password, []byte(want)) == 1)
	if ok {
		s.setAuthed(true)
	}
	return ok
}

func hello(s *session, args [][]byte) {
	version := s.version
	if len(args) > 1 {
		n, ok := resp.ParseInt(args[1])
		switch {
		case !ok:
			s.refuse("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			s.refuse("NOPROTO unsupported protocol version")
			return
		}
		version = resp.Version(n - 2)
	}
	for i := 2; i < len(args); i++ { // what comes before an error is done, as in redis-server
		switch {
		case lower(args[i]) == "auth" && i+2 < len(args):
			if !s.login(args[i+1 : i+3]) {
				s.refuse(errWrongPass)
				return
			}
			i += 2
		case lower(args[i]) == "setname" && i+1 < len(args):
			i++
			if !s.rename(args[i]) {
				return
			}
		default:
			s.refuse("ERR Syntax error in HELLO option '" + store.Shown(args[i]) + "'")
			return
		}
	}
	if !s.mayAct() {
		s.refuse("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	s.version = version
	s.write(s.greeting())
}

func (s *session) greeting() []byte {
	out := s.version.AppendMap(nil, 7)
	for _, kv := range [][2]string{{"server", "redis"}, {"version", redisVersion}} {
		out = resp.AppendBulk(resp.AppendBulk(out, kv[0]), kv[1])
	}
	out = resp.AppendInt(resp.AppendBulk(out, "proto"), int64(s.version)+2)
	out = resp.AppendInt(resp.AppendBulk(out, "id"), int64(s.conn.ID()))
	out = resp.AppendBulk(resp.AppendBulk(out, "mode"), "standalone")
	out = resp.AppendBulk(resp.AppendBulk(out, "role"), "master")
	return resp.AppendArray(resp.AppendBulk(out, "modules"), 0)
}

func selectDB(s *session, args [][]byte) {
	if message := store.CheckDB(args[1]); message != "" {
		s.refuse(message)
		return
	}
	s.ok()
}

// swapDB exchanges the only database with itself.
func swapDB(s *session, args [][]byte) {
	outOfRange := false
	for i, which := range []string{"first", "second"} {
		n, ok := resp.ParseInt(args[1+i])
		if !ok || n != int64(int32(n)) {
			s.refuse("ERR invalid " + which + " DB index")
			return
		}
		outOfRange = outOfRange || n != 0
	}
	if outOfRange {
		s.refuse("ERR DB index is out of range")
		return
	}
	s.ok()
}

// moveToDB is MOVE, for which there is no other database.
func moveToDB(s *session, args [][]byte) {
	if message := store.CheckDB(args[2]); message != "" {
		s.refuse(message)
		return
	}
	s.refuse("ERR source and destination objects are the same")
}

func timeCommand(s *session, _ [][]byte) {
	now := time.Now()
	out := resp.AppendBulk(resp.AppendArray(nil, 2), fmt.Sprint(now.Unix()))
	s.write(resp.AppendBulk(out, fmt.Sprint(now.Nanosecond()/1000)))
}

// shutdown ends the program, as a signal does.
func shutdown(s *session, args [][]byte) {
	for _, a := range args[1:] {
		switch lower(a) {
		case "nosave", "save", "now", "force":
		default:
			s.refuse("ERR syntax error")
			return
		}
	}
	s.server.log.Info().Msg("a client asked for the shutdown")
	s.server.stop()
}

// commandCommands are without DOCS: redis-cli then shows the hints that it has of its own.
var commandCommands = []command{
	{name: "command|count", arity: 2, run: commandCount},
	{name: "command|help", arity: 2, run: help(commandHelp)},
	{name: "command|info", arity: -2, run: commandInfo},
	{name: "command|getkeys", arity: -3, run: getKeys},
}

func commandCount(s *session, _ [][]byte) {
	n := len(commands)
	store.All(func(*store.Command) { n++ })
	s.write(resp.AppendInt(nil, int64(n)))
}

func commandTable(s *session, _ [][]byte) {
	var table []byte
	n := 0
	store.All(func(c *store.Command) {
		table = appendCommandInfo(table, c.Name, c.Arity, c)
		n++
	})
	for _, c := range commands {
		table = appendCommandInfo(table, c.name, c.arity, nil)
		n++
	}
	s.write(append(resp.AppendArray(nil, n), table...))
}

func commandInfo(s *session, args [][]byte) {
	names := args[2:]
	out := resp.AppendArray(nil, len(names))
	for _, name := range names {
		if c := store.Lookup(name); c != nil {
			out = appendCommandInfo(out, c.Name, c.Arity, c)
		} else if c := lookup(name); c != nil {
			out = appendCommandInfo(out, c.name, c.arity, nil)
		} else {
			out = s.version.AppendNull(out)
		}
	}
	s.write(out)
}

func appendCommandInfo(out []byte, name string, arity int, data *store.Command) []byte {
	out = resp.AppendBulk(resp.AppendArray(out, 6), name)
	out = resp.AppendInt(out, int64(arity))
	if data == nil {
		out = resp.AppendArray(out, 0)
		return resp.AppendInt(resp.AppendInt(resp.AppendInt(out, 0), 0), 0)
	}
	var flags []string
	if data.Flags&store.Write != 0 {
		flags = append(flags, "write")
	} else {
		flags = append(flags, "readonly")
	}
	if data.Flags&store.DenyOOM != 0 {
		flags = append(flags, "denyoom")
	}
	if data.Flags&store.Blocking != 0 {
		flags = append(flags, "blocking")
	}
	if data.Keys != nil {
		flags = append(flags, "movablekeys")
	}
	out = resp.AppendArray(out, len(flags))
	for _, f := range flags {
		out = resp.AppendSimple(out, f)
	}
	out = resp.AppendInt(out, int64(data.First))
	return resp.AppendInt(resp.AppendInt(out, int64(data.Last)), int64(data.Step))
}

func getKeys(s *session, args [][]byte) {
	args = args[2:]
	c := store.Lookup(args[0])
	switch {
	case c == nil:
		s.refuse("ERR Invalid command specified")
	case !c.ArityOK(len(args)):
		s.refuse("ERR Invalid number of arguments specified for command")
	default:
		keys := c.AppendKeys(nil, args)
		if len(keys) == 0 {
			s.refuse("ERR The command has no key arguments")
			return
		}
		out := resp.AppendArray(nil, len(keys))
		for _, key := range keys {
			out = resp.AppendBulk(out, key)
		}
		s.write(out)
	}
}

// later runs f on the client's loop, behind what runs now.
func (s *session) later(f func()) { _ = s.conn.Ref().Tell(func(*loop.Conn) { f() }) }
