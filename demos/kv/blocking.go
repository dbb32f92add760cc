package main

import (
	"bytes"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/loop"
)

// blocked is a command of a client that waits for a key. It belongs to the loop of the client.
type blocked struct {
	cancel func()
	expire func(err string) // answers as if its time were over, or with an error
}

// block makes the client wait for a key of this loop. Its timeout is on the wheel.
func (s *session) block(sh *shard, w *store.Wait) {
	s.waiting = &blocked{
		cancel: func() { sh.db.Cancel(w) },
		expire: func(err string) {
			if err == "" {
				sh.db.Expire(w)
			} else if sh.db.Cancel(w) {
				s.unblock(resp.AppendError(nil, err))
			}
		},
	}
	sh.db.Wait(w, func(reply []byte) {
		sh.whenSafe(reply, true, s.unblock)
	})
}

// unblock answers a command that has waited, and goes on with what was sent behind it. It never
// runs inside of the command that brought the answer: that may be this client's own.
func (s *session) unblock(reply []byte) {
	if s.waiting == nil {
		return
	}
	s.waiting = nil
	s.write(reply)
	_ = s.conn.Ref().Tell(func(*loop.Conn) { s.resume() })
}

// blockThere is block for a key of another loop, where it first has to be seen whether it must
// wait.
func (s *session) blockThere(sh *shard, cmd *store.Command, args [][]byte) {
	v, ref := s.version, s.conn.Ref()
	b := new(blocked)
	var w *store.Wait // sh's
	var over bool     // sh's, too
	there := func(f func()) { _ = sh.loop.Post(f) }
	b.cancel = func() {
		there(func() {
			if over = true; w != nil {
				sh.db.Cancel(w)
			}
		})
	}
	answer := func(reply []byte) {
		reply = bytes.Clone(reply)
		_ = ref.Tell(func(*loop.Conn) { s.unblock(reply) })
	}
	b.expire = func(err string) {
		there(func() {
			switch {
			case w == nil:
			case err == "":
				sh.db.Expire(w)
			case sh.db.Cancel(w):
				answer(resp.AppendError(nil, err))
			}
		})
	}
	s.waiting = b
	err := sh.loop.Post(func() {
		if over {
			return
		}
		var reply []byte
		if reply, w = sh.run(cmd, args, v, false); w == nil {
			sh.whenSafe(reply, true, answer)
			return
		}
		sh.db.Wait(w, func(reply []byte) { sh.whenSafe(reply, true, answer) })
	})
	if err != nil {
		s.unblock(resp.AppendError(nil, "ERR this server is overloaded, or about to stop: "+err.Error()))
	}
}
