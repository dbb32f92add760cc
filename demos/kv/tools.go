package main

import (
	"math"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// What tools for redis-server ask for that this server has not: they shall find that there is none
// of it, and go on.

// slowlogCommands show a log that stays empty: no command is timed. The log of the program and INFO
// tell of what keeps a loop busy.
var slowlogCommands = []command{
	{name: "slowlog|get", arity: -2, run: slowlogGet},
	{name: "slowlog|len", arity: 2, run: func(s *session, _ [][]byte) { s.write(resp.AppendInt(nil, 0)) }},
	{name: "slowlog|reset", arity: 2, run: func(s *session, _ [][]byte) { s.ok() }},
	{name: "slowlog|help", arity: 2, run: help(slowlogHelp)},
}

func slowlogGet(s *session, args [][]byte) {
	if len(args) > 3 {
		s.refuse(wrongSyntax(args))
		return
	}
	if len(args) == 3 {
		if n, ok := resp.ParseInt(args[2]); !ok || n < -1 || n > math.MaxInt32 {
			s.refuse("ERR count should be greater than or equal to -1")
			return
		}
	}
	s.write(resp.AppendArray(nil, 0))
}

// role is that of a master that nobody replicates.
func role(s *session, _ [][]byte) {
	out := resp.AppendBulk(resp.AppendArray(nil, 3), "master")
	s.write(resp.AppendArray(resp.AppendInt(out, 0), 0))
}

// wait waits for replicas, of which there are none: for as long as the client says, or at all if it
// says 0.
func wait(s *session, args [][]byte) {
	replicas, ok := resp.ParseInt(args[1])
	if !ok {
		s.refuse("ERR value is not an integer or out of range")
		return
	}
	ms, ok := resp.ParseInt(args[2])
	switch {
	case !ok:
		s.refuse("ERR timeout is not an integer or out of range")
	case ms < 0:
		s.refuse("ERR timeout is negative")
	case replicas <= 0 || s.capture != nil: // a transaction does not wait
		s.write(resp.AppendInt(nil, 0))
	default:
		s.waitInVain(ms)
	}
}

// waitInVain answers 0 when the time is over, or CLIENT UNBLOCK says so.
func (s *session) waitInVain(ms int64) {
	none := resp.AppendInt(nil, 0)
	stop := func() bool { return true }
	if ms > 0 {
		d := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		stop = s.conn.AfterFunc(d, func() { s.unblock(none) }).Stop
	}
	s.waiting = &blocked{
		cancel: func() { stop() },
		expire: func(err string) {
			stop()
			if err != "" {
				s.unblock(resp.AppendError(nil, err))
				return
			}
			s.unblock(none)
		},
	}
}
