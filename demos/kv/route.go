package main

import (
	"bytes"
	"strconv"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/loop"
)

// errCrossSlot is what a Redis Cluster says. Keys of one command have to be in one slot, even if
// two slots are of one shard: else the same command would work with two shards and not with three.
const errCrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// route returns the shard that a command belongs to, or nil if it is about all of them.
func (s *server) route(cmd *store.Command, args [][]byte) (sh *shard, err string) {
	if len(s.shards) == 1 {
		return s.shards[0], ""
	}
	keys := cmd.AppendKeys(nil, args)
	if len(keys) == 0 {
		if cmd.First == 0 && cmd.Keys == nil {
			return nil, ""
		}
		return s.shards[0], "" // which will say what is wrong
	}
	first := slot(keys[0])
	for _, key := range keys[1:] {
		if slot(key) != first {
			return nil, errCrossSlot
		}
	}
	return s.shardOf(keys[0]), ""
}

// there runs a command on the keys of another loop. Its answer keeps its place among the others.
func (s *session) there(sh *shard, cmd *store.Command, args [][]byte) {
	args, v := cloneArgs(args), s.version
	if cmd.Flags&store.Blocking != 0 {
		s.blockThere(sh, cmd, args)
		return
	}
	s.ask(sh, func(done func([]byte)) {
		reply, _ := sh.run(cmd, args, v, false)
		sh.whenSafe(reply, cmd.Flags&store.Write != 0, done)
	})
}

// ask is Answers.AskLater for a shard.
func (s *session) ask(sh *shard, work func(done func([]byte))) {
	if err := s.answers.StartOn(sh.loop, work); err != nil {
		s.write(resp.AppendError(nil, "ERR this server is overloaded, or about to stop: "+err.Error()))
	}
}

// whenSafe calls done with a reply once what it tells of is as safe as it has to be. When the disk
// fails, a reply to a write becomes an error; reads go on, from memory.
func (sh *shard) whenSafe(reply []byte, wrote bool, done func([]byte)) {
	if j := sh.journal; j != nil && j.mustWait() {
		reply = bytes.Clone(reply)
		j.whenSafe(func(err error) {
			if err != nil && wrote { // it may be in memory, but nobody shall rely on it
				reply = resp.AppendError(nil, misconf(err))
			}
			done(reply)
		})
		return
	}
	done(reply)
}

// everywhere runs a command that is about all keys on all shards, and makes one answer of theirs.
func (s *session) everywhere(cmd *store.Command, args [][]byte) {
	if cmd.Name == "scan" {
		s.scan(cmd, args)
		return
	}
	args, v := cloneArgs(args), s.version
	s.gather(cmd.Flags&store.Write != 0, func(sh *shard) []byte {
		reply, _ := sh.run(cmd, args, v, false)
		return reply
	}, func(replies [][]byte) []byte { return merge(cmd.Name, replies) })
}

// gather has part run on each shard, where it may write, and answers with what whole makes of what
// comes of that.
func (s *session) gather(wrote bool, part func(sh *shard) []byte, whole func(parts [][]byte) []byte) {
	later := s.answers.Later()
	parts, missing := make([][]byte, len(s.server.shards)), len(s.server.shards)
	ref := s.conn.Ref()
	for i, sh := range s.server.shards {
		arrived := func(p []byte) {
			_ = ref.Tell(func(*loop.Conn) {
				parts[i] = p
				if missing--; missing == 0 {
					later.Done(whole(parts))
				}
			})
		}
		err := sh.loop.Post(func() {
			sh.whenSafe(part(sh), wrote, func(p []byte) { arrived(bytes.Clone(p)) })
		})
		if err != nil {
			arrived(resp.AppendError(nil, "ERR this server is overloaded, or about to stop: "+err.Error()))
		}
	}
}

// merge makes one reply of those of all shards.
func merge(name string, replies [][]byte) []byte {
	for _, r := range replies {
		if r[0] == '-' {
			return r
		}
	}
	switch name {
	case "dbsize":
		sum := int64(0)
		for _, r := range replies {
			n, _ := resp.ParseInt(bytes.TrimSuffix(r[1:], []byte("\r\n")))
			sum += n
		}
		return resp.AppendInt(nil, sum)
	case "keys":
		var elems []byte
		sum := 0
		for _, r := range replies {
			head, rest, _ := bytes.Cut(r, []byte("\r\n"))
			n, _ := strconv.Atoi(string(head[1:]))
			sum += n
			elems = append(elems, rest...)
		}
		return append(resp.AppendArray(nil, sum), elems...)
	case "randomkey":
		for _, r := range replies {
			if v, err := resp.Parse(r); err == nil && !v.IsNull() {
				return r
			}
		}
	}
	return replies[0]
}

// scan walks over one shard after the other. A cursor is that of a shard, times the number of
// shards, and the shard.
func (s *session) scan(cmd *store.Command, args [][]byte) {
	n := uint64(len(s.server.shards))
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		s.write(resp.AppendError(nil, "ERR invalid cursor"))
		return
	}
	at := cursor % n
	sh, args, v := s.server.shards[at], cloneArgs(args), s.version
	args[1] = strconv.AppendUint(nil, cursor/n, 10)
	s.ask(sh, func(done func([]byte)) {
		reply, _ := sh.run(cmd, args, v, false)
		done(rewriteCursor(reply, at, n))
	})
}

// rewriteCursor puts the cursor of all shards in the place of that of shard at.
func rewriteCursor(reply []byte, at, n uint64) []byte {
	parts := bytes.SplitN(reply, []byte("\r\n"), 4) // *2, $length, cursor, the rest
	if len(parts) < 4 || parts[0][0] != '*' {
		return reply // an error
	}
	inner, _ := strconv.ParseUint(string(parts[2]), 10, 64)
	next := inner*n + at
	if inner == 0 {
		next = (at + 1) % n
	}
	out := resp.AppendBulk(resp.AppendArray(nil, 2), strconv.FormatUint(next, 10))
	return append(out, parts[3]...)
}
