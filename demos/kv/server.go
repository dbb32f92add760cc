package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/aof"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	// maxOutbound is how many bytes may wait for a subscriber who does not read, before it is
	// closed, if the command line does not say it; redis-server has the same limit.
	maxOutbound = 32 << 20

	// highWater is how many bytes of answers may wait for a client before its next command is run.
	highWater = 256 << 10

	// memoryInterval is how often the memory in use is looked at.
	memoryInterval = 100 * time.Millisecond
)

// A server is all that the connections share. It is set up before the loops run; what changes later
// is atomic, or belongs to a shard.
type server struct {
	options options
	log     zerolog.Logger
	net     *loop.Server
	shards  []*shard // one for each loop
	started time.Time
	config  *config
	stop    context.CancelFunc
	unlock  func() // the directory

	openFile func(path string, flag int, perm os.FileMode) (aof.File, error) // nil: os.OpenFile

	usedMemory atomic.Int64
	maxMemory  atomic.Int64
	maxClients atomic.Int64
	idle       atomic.Int64 // a time.Duration
	copied     atomic.Int64 // what a rewrite may take besides
	clients    atomic.Int64
	rewrites   atomic.Int64 // that run
	rewriting  sync.Mutex   // one shard's at a time
	background sync.WaitGroup
}

// A shard is the data of one loop, and what else lives there. Only its loop may touch it.
type shard struct {
	server   *server
	index    int
	loop     *loop.Loop
	db       *store.DB
	call     store.Call
	pubsub   pubsub
	told     []byte // the event in hand
	sessions map[uint64]*session
	journal  *journal // nil: nothing is kept
}

func newServer(o options, log zerolog.Logger, stop context.CancelFunc) *server {
	s := &server{options: o, log: log, started: time.Now(), config: newConfig(o), stop: stop}
	s.maxMemory.Store(o.maxMemory)
	s.maxClients.Store(int64(o.maxConns))
	s.idle.Store(int64(o.idle))
	for i := range o.shards {
		sh := &shard{server: s, index: i, sessions: make(map[uint64]*session)}
		sh.db = &store.DB{Events: o.events, Notify: sh.notify}
		sh.call.DB = sh.db
		s.shards = append(s.shards, sh)
	}
	s.net = &loop.Server{
		Addr:        o.addr,
		Codec:       resp.Server{},
		Accept:      s.accept,
		NumLoops:    o.shards,
		MaxOutbound: int(o.maxOut),
		HoldBackAt:  highWater,
		Farewell:    tooMany,
		OnStart:     s.startLoop,
		Logger:      log,
	}
	return s
}

// startLoop is the first thing that happens on a loop: the keys that were read from disk get their
// timers.
func (s *server) startLoop(l *loop.Loop) {
	sh := s.shards[l.Index()]
	sh.loop, sh.db.Loop = l, l
	sh.db.Arm()
	if sh.journal != nil {
		sh.journal.start(l)
	}
	if l.Index() == 0 {
		s.fitClients()
		s.lookAtMemory()
		l.Every(memoryInterval, s.lookAtMemory)
	}
}

// lookAtMemory notes what the heap takes. Garbage that was not collected yet counts, too; but near
// the limit the collector runs as often as it must.
func (s *server) lookAtMemory() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	s.usedMemory.Store(int64(sample[0].Value.Uint64()))
}

func (s *server) overMemory() bool {
	limit := s.maxMemory.Load()
	return limit > 0 && s.usedMemory.Load() > limit+s.copied.Load()
}

// allowCopy lets the program take as much memory again as it has, for a rewrite, which reads the
// files into a second copy of the data: no client's write shall be refused for that.
func (s *server) allowCopy() (end func()) {
	s.copied.Store(s.usedMemory.Load())
	limitHeap(s.maxMemory.Load(), s.copied.Load())
	return func() {
		runtime.GC() // the copy counts until it is collected
		s.lookAtMemory()
		limitHeap(s.maxMemory.Load(), 0)
		s.copied.Store(0)
	}
}

// tooMany is what a client is told that is one too many.
var tooMany = resp.AppendError(nil, "ERR max number of clients reached")

func (s *server) accept(c *loop.Conn) loop.Handler {
	if !s.mayEnter() {
		_, _ = c.Write(tooMany)
		return nil
	}
	se := &session{
		server: s, conn: c, requests: resp.Of(c), answers: handler.NewReplies(c, 0),
		shard: s.shards[c.Loop().Index()], authed: s.config.password() == "", opened: time.Now(),
	}
	se.requests.Unauthenticated = !se.authed
	se.shard.sessions[c.ID()] = se
	c.OnEOF(func() { se.answers.CloseAfter(io.EOF) }) // requests from a file, through nc -N
	se.watchSilence()
	return se
}

// shardOf returns the shard of a key.
func (s *server) shardOf(key []byte) *shard {
	if len(s.shards) == 1 {
		return s.shards[0]
	}
	return s.shards[int(slot(key))%len(s.shards)]
}
