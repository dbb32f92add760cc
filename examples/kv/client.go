package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/examples/kv/store"
)

func client(s *session, args [][]byte) {
	sub := lower(args[1])
	switch n := len(args); {
	case sub == "id" && n == 2:
		s.write(resp.AppendInt(nil, int64(s.conn.ID())))
	case sub == "getname" && n == 2:
		s.write(s.appendName())
	case sub == "setname" && n == 3:
		s.setName(string(args[2]))
	case sub == "setinfo" && n == 4, sub == "no-evict" && n == 3, sub == "no-touch" && n == 3:
		s.ok()
	case sub == "reply" && n == 3:
		s.setReply(lower(args[2]))
	case sub == "info" && n == 2:
		s.write(resp.AppendBulk(nil, s.describe()+"\n"))
	case sub == "list":
		s.clientList()
	case sub == "kill" && n >= 3:
		s.kill(args[2:])
	case sub == "unblock" && (n == 3 || n == 4):
		s.clientUnblock(args[2:])
	default:
		s.refuse(store.WrongSubcommand(args, "id", "getname", "setname", "setinfo", "no-evict", "no-touch", "reply", "info", "list", "kill", "unblock"))
	}
}

// Whether a client wants answers: CLIENT REPLY.
const (
	replyOn = iota
	replyOff
	replySkipNext // not to the next command
	replySkip     // which is this
)

func (s *session) setReply(how string) {
	switch how {
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

func (s *session) appendName() []byte {
	if s.name == "" {
		return s.version.AppendNull(nil)
	}
	return resp.AppendBulk(nil, s.name)
}

func (s *session) setName(name string) {
	if strings.ContainsAny(name, " \n\r\t") {
		s.refuse("ERR Client names cannot contain spaces, newlines or special characters.")
		return
	}
	s.name = name
	s.ok()
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

func (s *session) clientList() {
	list := func(sh *shard) []byte {
		var b bytes.Buffer
		for _, other := range sh.sessions {
			b.WriteString(other.describe() + "\n")
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

// kill closes clients: KILL addr, or KILL with ID, ADDR and SKIPME.
func (s *session) kill(args [][]byte) {
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
			skipMe = lower(args[i+1]) == "yes"
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
func (s *session) clientUnblock(args [][]byte) {
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
