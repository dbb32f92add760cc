package main

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
)

var clientCommands = []command{
	{name: "client|id", arity: 2, run: func(s *session, _ [][]byte) { s.write(resp.AppendInt(nil, int64(s.conn.ID()))) }},
	{name: "client|getname", arity: 2, run: getName},
	{name: "client|setname", arity: 3, run: setName},
	{name: "client|setinfo", arity: 4, run: func(s *session, _ [][]byte) { s.ok() }},
	{name: "client|no-evict", arity: 3, run: onOrOff},
	{name: "client|no-touch", arity: 3, run: onOrOff},
	{name: "client|reply", arity: 3, run: setReply},
	{name: "client|info", arity: 2, run: func(s *session, _ [][]byte) { s.write(resp.AppendBulk(nil, s.describe()+"\n")) }},
	{name: "client|list", arity: -2, run: clientList},
	{name: "client|kill", arity: -3, run: kill},
	{name: "client|unblock", arity: -3, run: clientUnblock},
	{name: "client|help", arity: 2, run: help(clientHelp)},
}

// onOrOff takes a setting that changes nothing here: no key is evicted, and none has a time of use.
func onOrOff(s *session, args [][]byte) {
	if how := lower(args[2]); how != "on" && how != "off" {
		s.refuse("ERR syntax error")
		return
	}
	s.ok()
}

// Whether a client wants answers: CLIENT REPLY.
const (
	replyOn = iota
	replyOff
	replySkipNext // not to the next command
	replySkip     // which is this
)

func setReply(s *session, args [][]byte) {
	switch lower(args[2]) {
	case "on":
		s.quiet = replyOn
		s.ok()
	case "off":
		s.quiet = replyOff
	case "skip":
		if s.quiet == replyOn || s.quiet == replySkip {
			s.quiet = replySkipNext
		}
	default:
		s.refuse("ERR syntax error")
	}
}

func getName(s *session, _ [][]byte) {
	if s.name == "" {
		s.write(s.version.AppendNull(nil))
		return
	}
	s.write(resp.AppendBulk(nil, s.name))
}

func setName(s *session, args [][]byte) {
	if s.rename(args[2]) {
		s.ok()
	}
}

// rename gives the client a name, or answers why not and returns false.
func (s *session) rename(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			s.refuse("ERR Client names cannot contain spaces, newlines or special characters.")
			return false
		}
	}
	s.name = string(name)
	return true
}

// describe returns the client's line of CLIENT LIST.
func (s *session) describe() string {
	flags, multi := "N", -1
	if s.waiting != nil {
		flags = "b"
	}
	if s.multi != nil {
		flags, multi = "x", len(s.multi.queue)
	}
	if s.subs.len() > 0 {
		flags = "P"
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d flags=%s db=0 sub=%d psub=%d multi=%d omem=%d cmd=%s user=default resp=%d",
		s.conn.ID(), s.conn.RemoteAddr(), s.conn.LocalAddr(), s.name, int(time.Since(s.opened).Seconds()), flags,
		len(s.subs.channels), len(s.subs.patterns), multi, s.conn.Pending(), s.last, s.version+2)
}

// clientList lists all clients, or those of a type, or with some numbers.
func clientList(s *session, args [][]byte) {
	listed, err := listFilter(args)
	if err != "" {
		s.refuse(err)
		return
	}
	list := func(sh *shard) []byte {
		var b bytes.Buffer
		for _, other := range sh.sessions {
			if listed(other) {
				b.WriteString(other.describe() + "\n")
			}
		}
		return b.Bytes()
	}
	if len(s.server.shards) == 1 {
		s.write(s.version.AppendVerbatim(nil, "txt", string(list(s.shard))))
		return
	}
	v := s.version
	s.gather(false, list, func(parts [][]byte) []byte {
		return v.AppendVerbatim(nil, "txt", string(bytes.Join(parts, nil)))
	})
}

// listFilter returns which clients CLIENT LIST is about, or an error's text.
func listFilter(args [][]byte) (listed func(o *session) bool, err string) {
	option := ""
	if len(args) > 2 {
		option = lower(args[2])
	}
	switch {
	case option == "":
		return func(*session) bool { return true }, ""
	case option == "type" && len(args) == 4:
		kind := lower(args[3])
		if !slices.Contains([]string{"normal", "pubsub", "master", "replica", "slave"}, kind) {
			return nil, "ERR Unknown client type '" + store.Shown(args[3]) + "'"
		}
		return func(o *session) bool {
			return kind == "pubsub" && o.subs.len() > 0 || kind == "normal" && o.subs.len() == 0
		}, ""
	case option == "id" && len(args) > 3:
		ids := make(map[uint64]bool)
		for _, arg := range args[3:] {
			id, ok := resp.ParseInt(arg)
			if !ok {
				return nil, "ERR Invalid client ID"
			}
			ids[uint64(id)] = true
		}
		return func(o *session) bool { return ids[o.conn.ID()] }, ""
	}
	return nil, "ERR syntax error"
}

// kill closes clients: KILL addr, or KILL with ID, ADDR and SKIPME.
func kill(s *session, args [][]byte) {
	args = args[2:]
	old := len(args) == 1
	var id int64
	var addr string
	skipMe := true
	if old {
		addr, skipMe = string(args[0]), false
	}
	for i := 0; !old && i < len(args); i += 2 {
		switch opt := lower(args[i]); {
		case i+1 == len(args):
			s.refuse("ERR syntax error")
			return
		case opt == "id":
			var ok bool
			if id, ok = resp.ParseInt(args[i+1]); !ok || id < 1 {
				s.refuse("ERR client-id should be greater than 0")
				return
			}
		case opt == "addr":
			addr = string(args[i+1])
		case opt == "skipme":
			if skipMe = lower(args[i+1]) == "yes"; !skipMe && lower(args[i+1]) != "no" {
				s.refuse("ERR syntax error")
				return
			}
		default:
			s.refuse("ERR syntax error")
			return
		}
	}
	s.killMatching(old, func(o *session) bool {
		return (id == 0 || o.conn.ID() == uint64(id)) && (addr == "" || o.conn.RemoteAddr().String() == addr) && !(skipMe && o == s)
	})
}

func (s *session) killMatching(old bool, matches func(o *session) bool) {
	kill := func(sh *shard) int {
		n := 0
		for _, o := range sh.sessions {
			if matches(o) {
				n++
				o.later(o.conn.Close)
			}
		}
		return n
	}
	if !old {
		s.sum(kill)
		return
	}
	answer := func(n int64) []byte {
		if n == 0 {
			return resp.AppendError(nil, "ERR No such client")
		}
		return []byte("+OK\r\n")
	}
	if len(s.server.shards) == 1 {
		s.write(answer(int64(kill(s.shard))))
		return
	}
	s.gather(false, func(sh *shard) []byte { return resp.AppendInt(nil, int64(kill(sh))) },
		func(parts [][]byte) []byte {
			v, _ := resp.Parse(merge("dbsize", parts))
			return answer(v.Int)
		})
}

// clientUnblock ends the waiting of a client.
func clientUnblock(s *session, args [][]byte) {
	if len(args) > 4 {
		s.refuse(wrongSyntax(args))
		return
	}
	args = args[2:]
	id, ok := resp.ParseInt(args[0])
	reason := ""
	if ok && len(args) == 2 {
		switch lower(args[1]) {
		case "timeout":
		case "error":
			reason = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
		default:
			s.refuse("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
			return
		}
	}
	if !ok {
		s.refuse("ERR value is not an integer or out of range")
		return
	}
	s.sum(func(sh *shard) int {
		o := sh.sessions[uint64(id)]
		if o == nil || o.waiting == nil || o.closing {
			return 0
		}
		o.waiting.expire(reason)
		return 1
	})
}
