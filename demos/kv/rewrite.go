package main

import (
	"time"

	"github.com/loopwheel/loopwheel/demos/kv/aof"
	"github.com/loopwheel/loopwheel/demos/kv/store"
)

// rewriteIfLarge starts a rewrite when the files have doubled.
func (j *journal) rewriteIfLarge() {
	if j.log.Appended()-j.lastLook < rewriteMin/8 {
		return
	}
	j.lastLook = j.log.Appended()
	if base, incr := j.log.Size(); incr > rewriteMin && incr > base {
		j.rewrite()
	}
}

// rewrite makes a new base of what is on disk, in the background. All that the loop does for it is
// to begin a new file: the base is made by reading the files before that anew, on a goroutine with
// a DB of its own, which costs another core and memory for a while, but no loop a moment.
func (j *journal) rewrite() {
	if j.rewriting {
		return
	}
	j.rewriting = true
	j.shard.server.rewrites.Add(1)
	j.shard.server.background.Add(1)
	began := time.Now()
	j.log.Cut(func(last string, err error) {
		go func() {
			defer j.shard.server.background.Done()
			if err == nil {
				err = j.makeBase(last)
			}
			j.rewritten(time.Since(began), err)
		}()
	})
}

// makeBase waits for those of other shards: the second copy of the data is that of one shard.
func (j *journal) makeBase(last string) error {
	s := j.shard.server
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	defer s.allowCopy()()
	db := new(store.DB)
	for _, path := range j.files.Paths() {
		if err := aof.Read(path, replay(db)); err != nil {
			return err
		}
		if path == last {
			break
		}
	}
	return j.files.Replace(last, func(w *aof.Writer) error { return db.Dump(w.Write) })
}

// rewritten is called when a rewrite has ended.
func (j *journal) rewritten(took time.Duration, err error) {
	log := j.shard.server.log
	if err != nil {
		log.Error().Err(err).Msg("the append-only file could not be rewritten: the old one stays")
	} else {
		base, _ := j.log.Size()
		log.Info().Int("shard", j.shard.index).Int64("bytes", base).Dur("ms", took).Msg("rewrote the append-only file")
	}
	postSurely(j.loop, func() {
		j.rewriting = false
		j.shard.server.rewrites.Add(-1)
	})
}

// persistence returns the lines of INFO persistence.
func (s *server) persistence() []any {
	j := s.shards[0].journal
	if j == nil {
		return []any{"loading", 0, "aof_enabled", 0, "aof_rewrite_in_progress", 0}
	}
	status := "ok"
	if s.writable() != "" {
		status = "err"
	}
	var base, incr, behind int64
	for _, sh := range s.shards {
		b, i := sh.journal.log.Size()
		base, incr, behind = base+b, incr+i, behind+sh.journal.log.Behind()
	}
	return []any{"loading", 0, "aof_enabled", 1, "aof_last_write_status", status,
		"aof_rewrite_in_progress", min(1, s.rewrites.Load()),
		"aof_base_size", base, "aof_current_size", base + incr, "aof_buffer_length", behind}
}
