package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/aof"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	// maxBehind is how many bytes may wait for a slow disk before writes are refused.
	maxBehind = 256 << 20

	// The files are rewritten when what was appended is this much, and as much as the base.
	rewriteMin = 64 << 20
)

// A journal is the append-only file of a shard. It belongs to the shard's loop.
type journal struct {
	shard   *shard
	log     *aof.Log
	loop    *loop.Loop
	safe    int64 // all appended before this offset is as safe as appendfsync wants
	failed  error
	waiting []unsynced // in the order of their offsets

	files     *aof.Files
	lastLook  int64 // how much was appended when the size was looked at
	rewriting bool
}

// unsynced is an answer that waits for the disk.
type unsynced struct {
	offset int64
	done   func(err error)
}

var policies = map[string]aof.Policy{"always": aof.Always, "everysec": aof.EverySecond, "no": aof.Never}

// start is called on the shard's loop before it serves.
func (j *journal) start(l *loop.Loop) {
	j.loop = l
	l.Every(time.Second, j.rewriteIfLarge)
}

// onSafe is called on the log's goroutine.
func (j *journal) onSafe(offset int64, err error) {
	if j.loop == nil {
		return
	}
	postSurely(j.loop, func() {
		j.failed = err
		if err != nil {
			j.shard.server.log.Error().Err(err).Msg("cannot write the append-only file: writes are refused until it works")
		}
		j.safe = max(j.safe, offset)
		j.release()
	})
}

// postSurely is Loop.Post that waits while the mailbox is full. It must not be called on a loop.
func postSurely(l *loop.Loop, f func()) {
	for errors.Is(l.Post(f), loop.ErrMailboxFull) {
		time.Sleep(time.Millisecond)
	}
}

// mustWait reports whether answers have to wait, as they could tell of something that the end of
// this process could undo: what is not on disk yet, with appendfsync always, or not handed to the
// system.
func (j *journal) mustWait() bool { return j.log.Appended() > j.safe }

// whenSafe calls done when all that was appended until now is safe, or cannot be made so.
func (j *journal) whenSafe(done func(err error)) {
	if j.failed != nil {
		done(j.failed)
		return
	}
	j.waiting = append(j.waiting, unsynced{j.log.Appended(), done})
}

// release answers those who have waited long enough.
func (j *journal) release() {
	n := 0
	for n < len(j.waiting) && (j.failed != nil || j.waiting[n].offset <= j.safe) {
		n++
	}
	ready := j.waiting[:n]
	j.waiting = j.waiting[n:]
	for _, w := range ready {
		w.done(j.failed)
	}
	if len(j.waiting) == 0 {
		j.waiting = nil
	}
}

func misconf(err error) string {
	return "MISCONF Errors writing to the AOF file: " + err.Error()
}

// writable returns why writes are refused at the moment, "" if they are not.
func (s *server) writable() string {
	for _, sh := range s.shards {
		j := sh.journal
		if j == nil {
			return ""
		}
		if err := j.log.Err(); err != nil {
			return misconf(err)
		}
		if j.log.Behind() > maxBehind {
			return misconf(errors.New("the disk is too slow"))
		}
	}
	return ""
}

func (s *server) setFsync(policy string) {
	for _, sh := range s.shards {
		if j := sh.journal; j != nil {
			j.log.SetPolicy(policies[policy])
		}
	}
}

// load reads what is on disk, before the server starts, and opens the files to append to.
func (s *server) load() error {
	if s.options.dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.options.dir, 0o700); err != nil {
		return fmt.Errorf("-dir: %w", err)
	}
	unlock, err := aof.Lock(s.options.dir)
	if err != nil {
		return fmt.Errorf("-dir: %w", err)
	}
	s.unlock = unlock
	dir, err := s.dataDir()
	if err != nil {
		return err
	}
	for i, sh := range s.shards {
		files, err := aof.Open(dir, shardName(i))
		if err != nil {
			return err
		}
		files.OpenFile = s.openFile
		if err := s.readFiles(files, sh.db); err != nil {
			return err
		}
		j := &journal{shard: sh}
		if j.log, err = aof.Start(files, policies[s.options.fsync], j.onSafe); err != nil {
			return err
		}
		j.files = files
		sh.journal = j
		sh.db.Log = j.log.Append
	}
	return nil
}

func shardName(i int) string { return fmt.Sprintf("shard-%d", i) }

// readFiles runs the commands of the files on db. One that ends in the middle of a command is cut,
// if it is the last, as that is how a crash leaves it.
func (s *server) readFiles(files *aof.Files, db *store.DB) error {
	began := time.Now()
	paths := files.Paths()
	for i, path := range paths {
		err := aof.Read(path, replay(db))
		var bad *aof.CorruptError
		if errors.As(err, &bad) && bad.Torn() && i == len(paths)-1 {
			s.log.Warn().Str("file", path).Int64("offset", bad.Offset).
				Msg("the append-only file ends in the middle of a command, as after a crash: cut there")
			err = os.Truncate(path, bad.Offset)
		}
		if err != nil {
			return err
		}
	}
	if len(paths) > 0 {
		s.log.Info().Int("keys", db.Stats().Keys).Dur("ms", time.Since(began)).Msg("read the append-only file")
	}
	return nil
}

// replay returns a function that runs commands on db. What they answer does not matter.
func replay(db *store.DB) func(args [][]byte) error {
	x := &store.Call{DB: db, NoBlock: true}
	return func(args [][]byte) error {
		cmd := store.Lookup(args[0])
		if cmd == nil || !cmd.ArityOK(len(args)) || cmd.Flags&store.Write == 0 {
			return fmt.Errorf("a command that is not one of this server's: %.100q", args)
		}
		x.Args, x.Out = args, x.Out[:0]
		x.Run(cmd)
		return nil
	}
}

// dataDir returns the directory with the files of as many shards as there are now. CURRENT says
// which directory is valid. If that was written by another number of shards, the keys are given to
// the shards that they belong to now.
func (s *server) dataDir() (string, error) {
	current := filepath.Join(s.options.dir, "CURRENT")
	text, err := os.ReadFile(current)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	want, have := fmt.Sprintf("shards-%d", len(s.shards)), strings.TrimSpace(string(text))
	dir := filepath.Join(s.options.dir, want)
	if have == want {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil { // of an attempt before CURRENT was written
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if have != "" {
		if err := s.reshard(filepath.Join(s.options.dir, have), have, dir); err != nil {
			return "", err
		}
	}
	if err := aof.WriteFile(current, []byte(want+"\n")); err != nil {
		return "", err
	}
	if have != "" {
		_ = os.RemoveAll(filepath.Join(s.options.dir, have))
	}
	return dir, nil
}

// reshard writes the keys of another number of shards for those that there are now.
func (s *server) reshard(from, name, to string) error {
	var n int
	if _, err := fmt.Sscanf(name, "shards-%d", &n); err != nil || n < 1 {
		return fmt.Errorf("%s: CURRENT says %q, which is not \"shards-N\"", s.options.dir, name)
	}
	dbs := make([]*store.DB, len(s.shards))
	for i := range dbs {
		dbs[i] = new(store.DB)
	}
	for i := range n {
		files, err := aof.Open(from, shardName(i))
		if err != nil {
			return err
		}
		old := new(store.DB)
		if err := s.readFiles(files, old); err != nil {
			return err
		}
		old.Move(func(key string) *store.DB { return dbs[s.shardOf([]byte(key)).index] })
	}
	for i, db := range dbs {
		files, err := aof.Open(to, shardName(i))
		if err != nil {
			return err
		}
		if err := files.Replace("", func(w *aof.Writer) error { return db.Dump(w.Write) }); err != nil {
			return err
		}
	}
	return nil
}

// close writes what is left. The loops have ended.
func (s *server) close() (err error) {
	for _, sh := range s.shards {
		if sh.journal != nil {
			err = errors.Join(err, sh.journal.log.Close())
		}
	}
	s.background.Wait()
	if s.unlock != nil {
		s.unlock()
	}
	return err
}

func bgrewriteaof(s *session, _ [][]byte) {
	if s.shard.journal == nil {
		s.refuse("ERR there is no append-only file: start with -dir")
		return
	}
	for _, sh := range s.server.shards {
		_ = sh.loop.Post(sh.journal.rewrite)
	}
	s.write(resp.AppendSimple(nil, "Background append only file rewriting started"))
}
