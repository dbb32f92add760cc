//go:build unix

package redisgroup_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
)

// impatient returns a client that gives up soon on a Redis that does not answer.
func impatient(s *redistest.Server) *redis.Client {
	return s.ClientWith(redis.Options{ReadTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond})
}

// A scene is two processes, each with a witness, and one that speaks.
type scene struct {
	redis    *redistest.Server
	one, two *node
	speaker  *speaker
	ws       []*witness
}

func newScene(t *testing.T, args ...string) *scene {
	s := &scene{redis: redistest.Start(t, args...)}
	s.begin(t, impatient(s.redis), impatient(s.redis))
	return s
}

// begin starts the processes, and lets them say something.
func (s *scene) begin(t *testing.T, one, two redis.UniversalClient) {
	s.one, s.two = startNode(t, one, settled()), startNode(t, two, settled())
	s.speaker = newSpeaker(t, s.one, "room", "s")
	s.ws = []*witness{s.one.watch("room"), s.two.watch("room")}
	s.speaker.say(20, 20)
	s.heard(t)
}

// heard says one thing more, until Redis takes it, and waits until all have heard that.
func (s *scene) heard(t *testing.T) {
	t.Helper()
	s.all(t, s.speaker.insist(t))
}

func (s *scene) all(t *testing.T, what string) {
	t.Helper()
	for _, w := range s.ws {
		w.heard(t, what)
	}
}

// end says a last thing, waits for it, and judges. gaps tells whether there must be some.
func (s *scene) end(t *testing.T, gaps bool) {
	t.Helper()
	s.heard(t)
	for _, w := range s.ws {
		if n := w.verdict(t, s.speaker); gaps != (n > 0) {
			t.Errorf("%d gaps were told; want some: %v", n, gaps)
		}
	}
	t.Logf("%d said, %d taken", s.speaker.said, len(s.speaker.taken))
}

// A stopped Redis, once it continues, reads what is in its sockets, including commands that the Hub
// gave up long before.
func TestRedisStopped(t *testing.T) {
	s := newScene(t)
	for range 3 {
		s.speaker.during(func() {
			s.redis.Signal(syscall.SIGSTOP)
			time.Sleep(1200 * time.Millisecond) // clients give up, and try again
			s.redis.Signal(syscall.SIGCONT)
			s.speaker.goesOn(t, 50)
		})
	}
	s.end(t, false)
}

func TestRedisKilled(t *testing.T) {
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
	for range 2 {
		s.speaker.during(func() {
			s.redis.Kill()
			s.speaker.goesOn(t, 100)
			s.redis.Start()
			s.speaker.goesOn(t, 50)
		})
	}
	s.end(t, false)
}

// An old file: numbers that were handed out are handed out again, in another epoch, and the hole is
// told.
func TestRollback(t *testing.T) {
	s := newScene(t)
	s.redis.CLI("save")
	old, err := os.ReadFile(filepath.Join(s.redis.Dir, "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	s.speaker.say(50, 20)
	s.heard(t)
	s.redis.Kill()
	if err := os.WriteFile(filepath.Join(s.redis.Dir, "dump.rdb"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	s.redis.Start()
	s.end(t, true)
}

func TestFlushAll(t *testing.T) {
	s := newScene(t)
	c := s.two.dial()
	c.say("bind ann")
	c.say("ojoin room")
	who(t, s.one, "room", "ann")
	s.redis.CLI("flushall")
	s.redis.CLI("script", "flush")
	s.end(t, true)
	who(t, s.one, "room", "ann") // told anew
}

// What was trimmed before it was read is a gap.
func TestTrimmed(t *testing.T) {
	onReal(t, func(t *testing.T, connect func() redis.UniversalClient) {
		client := connect()
		one := startNode(t, client, settled())
		sp, w := newSpeaker(t, one, "room", "s"), one.watch("room")
		sp.say(10, 20)
		w.heard(t, "s:10")
		key := redisgroup.StreamOf(one.hub, "room")
		ctx := context.Background()
		for i := range 10 { // for which no caller gets an error
			last := client.XRevRangeN(ctx, key, "+", "-", 1).Val()[0]
			p, _ := redisgroup.ParsePosition(last.ID)
			p.Number++
			head, _, _ := strings.Cut(last.Values["e"].(string), "\n")
			client.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: p.String(), Values: []any{"e", fmt.Sprintf("%s\nt:%d", head, i+1)}})
		}
		client.XTrimMaxLen(ctx, key, 1)
		sp.say(1, 20)
		w.heard(t, "s:11")
		if n := w.verdict(t); n != 1 {
			t.Errorf("%d gaps told, want 1", n)
		}
	})
}

// A subscriber that Redis disconnects again and again because of its output buffer still gets
// everything, or a gap.
func TestOutputBufferCut(t *testing.T) {
	s := newScene(t)
	s.redis.CLI("config", "set", "client-output-buffer-limit", "pubsub 20kb 0 0")
	for range 20 {
		s.speaker.say(100, 2000)
		s.speaker.settled(t)
	}
	s.redis.CLI("config", "set", "client-output-buffer-limit", "pubsub 32mb 8mb 60")
	s.heard(t)
	for _, w := range s.ws {
		t.Logf("%d gaps", w.verdict(t, s.speaker))
	}
	t.Logf("%d connections were made", s.two.hub.Stats().Connects)
	if n := s.two.hub.Stats().Connects; n > 60 {
		t.Errorf("%d connections were made", n)
	}
}

// If Redis is full or read-only, publishers get its error, and nothing breaks.
func TestRefused(t *testing.T) {
	s := &scene{redis: redistest.Start(t)}
	s.begin(t, s.redis.Client(), s.redis.Client()) // which wait for its answer, however slow the machine
	s.redis.CLI("config", "set", "maxmemory", "1")
	s.speaker.say(10, 20)
	s.speaker.settled(t)
	if n := len(s.speaker.unclear); n != 10 {
		t.Fatalf("%d of 10 were refused by a full Redis", n)
	}
	for _, err := range s.speaker.unclear {
		if !strings.Contains(err.Error(), "OOM") {
			t.Errorf("refused with %v", err)
		}
	}
	s.redis.CLI("config", "set", "maxmemory", "0")
	s.redis.CLI("config", "set", "min-replicas-to-write", "1")
	s.speaker.during(func() { s.speaker.goesOn(t, 100) })
	s.redis.CLI("config", "set", "min-replicas-to-write", "0")
	s.end(t, false)
}
