package main

import (
	"bytes"
	"cmp"
	"errors"
	"hash/maphash"
	"strings"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A session is a client. Only the loop of its connection touches it.
type session struct {
	server   *server
	conn     *loop.Conn
	requests *requests
	replies  *handler.Replies // sends the replies in the order of the requests
	loops    []*loop.Loop     // all of the server
	shard    *shard           // of the connection's loop
}

// A command is an entry of the table. It has one of the two functions. args are valid until that
// returns.
type command struct {
	arity int       // how many arguments, the name included; -n means n at least
	key   onKey     // runs on the loop of the key, which is args[1]
	run   onSession // runs on the loop of the connection
}

// An onKey appends its reply to out. e is what the key has, or nil.
type onKey func(sh *shard, e *entry, args [][]byte, out []byte) []byte

// An onSession closes the connection if it returns an error.
type onSession func(s *session, args [][]byte) error

// maxWaiting is how many requests of a client may wait for other loops, until no more are read.
const maxWaiting = 64

// errHTTP closes the connection of a browser that a page made send commands in the body of a POST.
var errHTTP = errors.New("kv: an HTTP request in place of a command")

// OnMessage runs a request: at once if its key is on this loop.
func (s *session) OnMessage(*loop.Conn, []byte) error {
	if s.requests.broken != "" {
		return s.end(appendError(nil, "ERR Protocol error: "+s.requests.broken))
	}
	args := s.requests.args
	cmd := lookup(args[0])
	switch {
	case cmd == nil && (is(args[0], "POST") || is(args[0], "HOST:")):
		return errHTTP
	case cmd == nil:
		return s.refuse(unknown(args))
	case cmd.arity > 0 && len(args) != cmd.arity, len(args) < -cmd.arity:
		return s.refuse(about("wrong number of arguments for", args[0]))
	case cmd.run != nil:
		return cmd.run(s, args)
	}
	l := s.loopOf(args[1])
	if l == s.conn.Loop() {
		return s.reply(s.shard.run(cmd.key, args))
	}
	args = cloneArgs(args)
	var made []byte
	return s.gather([]*loop.Loop{l},
		func(sh *shard) { made = cmd.key(sh, sh.find(args[1]), args, nil) },
		func() []byte { return made })
}

// gather is how a call crosses loops. It runs work with the shard of each of the loops, there, and
// when all have done so reply here, which returns the reply. What work writes, reply may read.
//
// The commands of one client reach a shard in their order, as a loop runs what is posted to it in
// order, and Later keeps the places of the replies. So a client sees the same as with one loop.
func (s *session) gather(loops []*loop.Loop, work func(sh *shard), reply func() []byte) error {
	place, ref := s.replies.Later(), s.conn.Ref()
	missing, failed := len(loops), ""
	arrived := func(err string) {
		failed = cmp.Or(failed, err)
		missing--
		switch {
		case missing > 0:
		case failed != "":
			place.Done(appendError(nil, "ERR "+failed))
		default:
			place.Done(reply())
		}
	}
	for _, l := range loops {
		if l == s.conn.Loop() {
			work(s.shard)
			arrived("")
			continue
		}
		err := l.Post(func() {
			result := "internal error"                                        // if work panics, which the loop logs
			defer func() { ref.Tell(func(*loop.Conn) { arrived(result) }) }() // an error: the client has gone
			work(shardOf(l))
			result = ""
		})
		if err != nil { // the loop has ended, as the server is about to
			arrived(err.Error())
		}
	}
	return nil
}

// eachKey runs work for each key of a command, on the loop of the key, and then reply here. The
// keys are args[1] and each step-th one after it. work gets the number of a key, from 0 on, and the
// key with what belongs to it. Calls for several keys may write to one slice, each its own element.
func (s *session) eachKey(args [][]byte, step int, work func(sh *shard, i int, kv [][]byte), reply func() []byte) error {
	args = cloneArgs(args[1:])
	var loops []*loop.Loop
	places := make([][]int, len(s.loops)) // of keys in args, by loop
	for at := 0; at < len(args); at += step {
		l := s.loopOf(args[at])
		if places[l.Index()] == nil {
			loops = append(loops, l)
		}
		places[l.Index()] = append(places[l.Index()], at)
	}
	return s.gather(loops, func(sh *shard) {
		for _, at := range places[sh.loop.Index()] {
			work(sh, at/step, args[at:at+step])
		}
	}, reply)
}

// loopOf returns the loop whose shard has a key.
func (s *session) loopOf(key []byte) *loop.Loop {
	return s.loops[maphash.Bytes(s.server.seed, key)%uint64(len(s.loops))]
}

// reply sends a reply after those that other loops still make. p is copied.
func (s *session) reply(p []byte) error { return s.replies.Write(p) }

func (s *session) refuse(err string) error { return s.reply(appendError(nil, err)) }

// end closes the connection after a last reply.
func (s *session) end(last []byte) error {
	s.conn.PauseRead() // nothing that the client has sent after this is run
	err := s.reply(last)
	s.replies.CloseAfter(nil)
	return err
}

func (s *session) OnClose(*loop.Conn, error) {}

// cloneArgs copies arguments into one piece of memory, for other loops.
func cloneArgs(args [][]byte) [][]byte {
	whole, out := bytes.Join(args, nil), make([][]byte, len(args))
	for i, a := range args {
		out[i], whole = whole[:len(a):len(a)], whole[len(a):]
	}
	return out
}

// Errors in the words of redis-server 7.0, by which clients know them.
const (
	errSyntax = "ERR syntax error"
	errNotInt = "ERR value is not an integer or out of range"
)

// about is an error about a command.
func about(what string, name []byte) string {
	return "ERR " + what + " '" + strings.ToLower(string(name)) + "' command"
}

// unknown is the error for a command that does not exist. It shows about 128 bytes of the
// arguments.
func unknown(args [][]byte) string {
	shown := ""
	for i := 1; i < len(args) && len(shown) < 128; i++ {
		shown += "'" + cString(args[i][:min(len(args[i]), 128-len(shown))]) + "' "
	}
	return "ERR unknown command '" + cString(args[0][:min(len(args[0]), 128)]) + "', with args beginning with: " + shown
}

// cString returns what is before a zero byte, where the texts of redis-server end.
func cString(arg []byte) string {
	arg, _, _ = bytes.Cut(arg, []byte{0})
	return string(arg)
}

// is reports whether an argument is this word in any case.
func is(arg []byte, word string) bool { return strings.EqualFold(cString(arg), word) }
