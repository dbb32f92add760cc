package main

import (
	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
)

// A transaction is what a client has said since MULTI.
type transaction struct {
	queue  []queued
	failed bool // something was wrong: EXEC will be refused
	keys   [][]byte
}

// queued is a command of a transaction: on keys, or another.
type queued struct {
	data  *store.Command
	other *command
	args  [][]byte
}

// watching is what WATCH has left on keys, all of one slot.
type watching struct {
	shard *shard
	slot  uint16
	watch *store.Watch // the shard's
}

func multi(s *session, _ [][]byte) {
	if s.multi != nil {
		s.write(resp.AppendError(nil, "ERR MULTI calls can not be nested"))
		return
	}
	s.multi = new(transaction)
	s.ok()
}

// queue keeps a command for EXEC.
func (s *session) queue(data *store.Command, other *command, args [][]byte) {
	args = cloneArgs(args)
	if len(s.server.shards) > 1 {
		if err := s.multi.check(data, args); err != "" {
			s.refuse(err)
			return
		}
	}
	s.multi.queue = append(s.multi.queue, queued{data, other, args})
	s.write([]byte("+QUEUED\r\n"))
}

// check returns why a command cannot be in a transaction when there are several shards, "" if it
// can.
func (t *transaction) check(data *store.Command, args [][]byte) string {
	if data == nil || data.First == 0 && data.Keys == nil {
		return "ERR a transaction over shards takes only commands on keys: start with -shards 1"
	}
	t.keys = data.AppendKeys(t.keys, args)
	for _, key := range t.keys {
		if slot(key) != slot(t.keys[0]) {
			return errCrossSlot
		}
	}
	return ""
}

func discard(s *session, _ [][]byte) {
	if s.multi == nil {
		s.write(resp.AppendError(nil, "ERR DISCARD without MULTI"))
		return
	}
	s.multi = nil
	s.unwatch()
	s.ok()
}

func execCommand(s *session, _ [][]byte) {
	t, w := s.multi, s.watch
	if t == nil {
		s.write(resp.AppendError(nil, "ERR EXEC without MULTI"))
		return
	}
	s.multi, s.watch = nil, nil
	sh := s.shard
	if len(t.keys) > 0 {
		sh = s.server.shardOf(t.keys[0])
	}
	switch {
	case t.failed:
		w.end()
		s.write(resp.AppendError(nil, "EXECABORT Transaction discarded because of previous errors."))
	case w != nil && len(t.keys) > 0 && w.slot != slot(t.keys[0]):
		w.end()
		s.write(resp.AppendError(nil, errCrossSlot))
	case w != nil && len(t.keys) == 0:
		s.runTransaction(w.shard, t, w)
	default:
		s.runTransaction(sh, t, w)
	}
}

// runTransaction runs it where its keys are, as one.
func (s *session) runTransaction(sh *shard, t *transaction, w *watching) {
	if err := s.server.refuses(t); err != "" {
		w.end()
		s.abort(err)
		return
	}
	if sh == s.shard {
		s.reply(sh, sh.exec(t.queue, s.version, w, s), t.writes())
		return
	}
	v := s.version
	s.ask(sh, func(done func([]byte)) { sh.whenSafe(sh.exec(t.queue, v, w, nil), t.writes(), done) })
}

func (s *session) abort(why string) {
	s.write(resp.AppendError(nil, "EXECABORT Transaction discarded because of: "+why))
}

// refuses returns why a transaction cannot be run now, "" if it can.
func (s *server) refuses(t *transaction) string {
	switch {
	case t.has(store.DenyOOM) && s.overMemory():
		return errOOM
	case t.writes():
		return s.writable()
	}
	return ""
}

func (t *transaction) writes() bool { return t.has(store.Write) }

func (t *transaction) has(flag int) bool {
	for _, q := range t.queue {
		if q.data != nil && q.data.Flags&flag != 0 {
			return true
		}
	}
	return false
}

// exec runs a transaction on the shard's loop. s is the client if that lives here, too: commands
// that are not about keys are run on it.
func (sh *shard) exec(queue []queued, v resp.Version, w *watching, s *session) (reply []byte) {
	if w != nil {
		touched := w.watch.Touched
		sh.db.Unwatch(w.watch)
		if touched {
			return v.AppendNullArray(nil)
		}
	}
	reply = resp.AppendArray(nil, len(queue))
	sh.db.Begin(len(queue))
	for _, q := range queue {
		if q.data != nil {
			one, _ := sh.run(q.data, q.args, v, true)
			reply = append(reply, one...)
			continue
		}
		s.capture = new([]byte)
		q.other.run(s, q.args)
		reply = append(reply, *s.capture...)
		s.capture = nil
		v = s.version
	}
	sh.db.End()
	return reply
}

func watch(s *session, args [][]byte) {
	if s.multi != nil {
		s.write(resp.AppendError(nil, "ERR WATCH inside MULTI is not allowed"))
		return
	}
	keys := cloneArgs(args[1:])
	first := slot(keys[0])
	if s.watch != nil {
		first = s.watch.slot
	}
	if len(s.server.shards) > 1 {
		for _, key := range keys {
			if slot(key) != first {
				s.write(resp.AppendError(nil, errCrossSlot))
				return
			}
		}
	}
	if s.watch == nil {
		s.watch = &watching{shard: s.server.shardOf(keys[0]), slot: first, watch: new(store.Watch)}
	}
	w := s.watch
	add := func() {
		for _, key := range keys {
			w.shard.db.Watch(w.watch, key)
		}
	}
	if w.shard == s.shard {
		add()
		s.ok()
		return
	}
	s.ask(w.shard, func(done func([]byte)) {
		add()
		done([]byte("+OK\r\n"))
	})
}

func unwatch(s *session, _ [][]byte) {
	s.unwatch()
	s.ok()
}

func (s *session) unwatch() {
	s.watch.endOn(s.shard)
	s.watch = nil
}

// end forgets the keys; nil does nothing.
func (w *watching) end() { w.endOn(nil) }

// endOn is end, called on the loop of a shard.
func (w *watching) endOn(here *shard) {
	switch {
	case w == nil:
	case w.shard == here:
		w.shard.db.Unwatch(w.watch)
	default:
		_ = w.shard.loop.Post(func() { w.shard.db.Unwatch(w.watch) })
	}
}
