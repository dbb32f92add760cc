//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A cutter breaks connections to Redis before a command is sent, or when its answer comes.
type cutter struct {
	mu   sync.Mutex
	mode cut
	cuts atomic.Int64 // how often
}

type cut string

const (
	cutNothing  cut = ""
	cutCommands cut = "before"
	cutAnswers  cut = "after"
)

func (k *cutter) set(mode cut) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mode = mode
}

func (k *cutter) is(mode cut) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mode == mode
}

// dial makes no connection while others are cut: nothing is repeated meanwhile.
func (k *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !k.is(cutNothing) {
		return nil, errDown
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return cutConn{c, k}, err
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c cutConn) Write(b []byte) (int, error) {
	if c.cutter.is(cutCommands) {
		c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.cutter.is(cutAnswers) {
		c.cutter.cuts.Add(1)
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A message whose answer was lost is not said twice, whatever has become of it: also by a process
// that has no member in the room. One that was never taken is tried again.
func TestAnswerLost(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		for _, l := range []lostAnswer{
			{"nothing", cutCommands, true}, {"nothing", cutAnswers, true},
			{"trimmed", cutCommands, true}, {"trimmed", cutAnswers, false},
			{"deleted", cutCommands, true}, {"deleted", cutAnswers, false},
			{"flushed", cutCommands, false}, {"flushed", cutAnswers, false},
		} {
			t.Run(fmt.Sprintf("%s %s", l.meanwhile, l.mode), func(t *testing.T) { l.test(t, connect()) })
		}
	})
}

// A lostAnswer is what is cut, what happens meanwhile, and whether the message is taken in the end.
type lostAnswer struct {
	meanwhile string
	mode      cut
	taken     bool
}

func (l lostAnswer) test(t *testing.T, client redis.UniversalClient) {
	k, room := &cutter{}, t.Name()
	one, two := startNode(t, redistest.Like(t, client, k.dial), settled()), startNode(t, client, settled())
	sp, w := newSpeaker(t, one, room, "s"), two.watch(room)
	sp.say(1, 10)
	w.heard(t, "s:1")
	sp.settled(t)
	k.set(l.mode)
	sp.say(1, 10)
	if l.mode == cutAnswers {
		w.heard(t, "s:2")
	}
	testkit.Eventually(t, "the connection is cut", func() bool { return redisgroup.Unclear(one.hub) == 1 })
	l.happen(t, client, redisgroup.StreamOf(one.hub, room))
	k.set(cutNothing)
	sp.settled(t)
	sp.say(1, 10)
	w.heard(t, "s:3")
	w.verdict(t, sp)
	if err := sp.unclear["s:2"]; l.taken && err != nil || !l.taken && !errors.Is(err, redisgroup.ErrUncertain) {
		t.Errorf("the outcome was %v; want it taken: %v", err, l.taken)
	}
}

func (l lostAnswer) happen(t *testing.T, client redis.UniversalClient, stream string) {
	var err error
	switch l.meanwhile {
	case "trimmed":
		err = client.XTrimMaxLen(t.Context(), stream, 0).Err()
	case "deleted":
		err = client.Del(t.Context(), stream).Err()
	case "flushed":
		redistest.FlushAll(t, client)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A message that was never sent, as the answer to what precedes the first one was lost, is tried
// again.
func TestAnswerLostBeforeTheFirstMessage(t *testing.T) {
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		k := &cutter{}
		n := startNode(t, redistest.Like(t, connect(), k.dial), settled())
		sp := newSpeaker(t, n, "room", "s")
		k.set(cutAnswers)
		sp.say(1, 10)
		testkit.Eventually(t, "it failed", func() bool { return k.cuts.Load() > 0 })
		k.set(cutNothing)
		if taken := sp.settled(t); taken != 1 {
			t.Errorf("it is not taken: %v", sp.unclear["s:1"])
		}
	})
}
