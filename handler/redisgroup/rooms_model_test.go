//go:build unix

package redisgroup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A modelRoom is the specification of an ordered room: a list of numbers and their contents.
// Members report what they get, and they get gaps for what they may have missed.
type modelRoom struct {
	t    *testing.T
	rand *rand.Rand
	mini *miniredis.Miniredis
	id   string // identity of the server
	down atomic.Bool
	text int

	nodes   []*node
	members []*modelMember
	gone    []*modelMember
	saved   []miniredis.StreamEntry
	stream  string

	mu    sync.Mutex
	said  int
	ends  int
	taken map[redisgroup.Position]string
	maybe map[string]bool // what may have been published
	undos []undo
}

// An undo is a restart of Redis with an old file: what follows the last entry there, up to an
// epoch, has never been.
type undo struct {
	last  redisgroup.Position
	epoch uint64
}

func newModelRoom(t *testing.T, seed uint64) *modelRoom {
	r := &modelRoom{t: t, rand: rand.New(rand.NewPCG(seed, 1)), mini: miniredis.RunT(t),
		taken: make(map[redisgroup.Position]string), maybe: make(map[string]bool)}
	r.begin()
	for range 3 {
		client := redis.NewClient(&redis.Options{Addr: r.mini.Addr(), Dialer: r.dial})
		t.Cleanup(func() { client.Close() })
		r.nodes = append(r.nodes, startNode(t, client, settled()))
	}
	r.stream = redisgroup.StreamOf(r.nodes[0].hub, "room")
	return r
}

var errDown = errors.New("the server is down")

// dial does not reach a server that is not yet what it is to be.
func (r *modelRoom) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if r.down.Load() {
		return nil, errDown
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// begin gives the server an identity, as each start of a real one does. miniredis has none.
func (r *modelRoom) begin() {
	r.id = fmt.Sprintf("%016x%024d", r.rand.Uint64(), 0)
	r.identify()
}

func (r *modelRoom) identify() {
	id := r.id
	r.mini.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" || len(args) != 1 || args[0] != "replication" {
			return false
		}
		c.WriteBulk("# Replication\r\nmaster_replid:" + id + "\r\n")
		return true
	})
}

func (r *modelRoom) node() *node { return r.nodes[r.rand.IntN(len(r.nodes))] }

// say publishes something.
func (r *modelRoom) say() (text string) {
	r.text++
	text = fmt.Sprintf("t%d", r.text)
	room, err := r.node().hub.Ordered("room")
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.said++
	r.mu.Unlock()
	if err := room.BroadcastThen([]byte(text), func(p redisgroup.Position, err error) { r.end(text, p, err) }); err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *modelRoom) end(text string, p redisgroup.Position, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends++
	switch other, twice := r.taken[p]; {
	case errors.Is(err, redisgroup.ErrUncertain):
		r.maybe[text] = true
	case err != nil && strings.Contains(err.Error(), "nil pointer"): // miniredis was closed within a script
		r.maybe[text] = true
	case err != nil:
		r.t.Errorf("%s: %v", text, err)
	case twice:
		r.t.Errorf("%s and %s have both got %v", other, text, p)
	default:
		r.taken[p] = text
	}
}

// step does one thing.
func (r *modelRoom) step() {
	switch n := r.rand.IntN(100); {
	case n < 55:
		for range 1 + r.rand.IntN(4) {
			r.say()
		}
	case n < 65 && len(r.members) < 12:
		r.members = append(r.members, r.join(redisgroup.Position{}))
	case n < 75 && len(r.members) > 0:
		r.move(r.rand.IntN(len(r.members)))
	case n < 79 && len(r.members) > 0:
		i := r.rand.IntN(len(r.members))
		r.members[i].c.say("oleave room")
		r.gone = append(r.gone, r.members[i])
		r.members = slices.Delete(r.members, i, i+1)
	case n < 84: // all connections are lost
		r.stop()
		r.restart()
	case n < 88:
		client := redis.NewClient(&redis.Options{Addr: r.mini.Addr()})
		left := r.rand.IntN(4)
		client.XTrimMaxLen(context.Background(), r.stream, int64(left))
		client.Close()
	case n < 90:
		r.mini.FlushAll()
		r.saved = nil
	case n < 95:
		r.saved, _ = r.mini.Stream(r.stream)
	case n < 97:
		r.undo()
	}
	time.Sleep(time.Duration(r.rand.IntN(3000)) * time.Microsecond) // steps come at any time
}

func (r *modelRoom) stop() {
	r.down.Store(true)
	r.mini.Close()
}

func (r *modelRoom) restart() {
	if err := r.mini.Restart(); err != nil {
		r.t.Fatal(err)
	}
	r.identify()
	r.down.Store(false)
}

// undo restarts Redis with what it had when it was saved.
func (r *modelRoom) undo() {
	r.stop()
	r.mini.FlushAll()
	u := undo{epoch: uint64(time.Now().UnixMicro())}
	for _, e := range r.saved {
		if _, err := r.mini.XAdd(r.stream, e.ID, e.Values); err != nil {
			r.t.Fatal(err)
		}
		u.last, _ = redisgroup.ParsePosition(e.ID)
	}
	r.mu.Lock()
	r.undos = append(r.undos, u)
	r.mu.Unlock()
	r.id = fmt.Sprintf("%016x%024d", r.rand.Uint64(), 0)
	testkit.Eventually(r.t, "the next epoch is a later one", func() bool { return uint64(time.Now().UnixMicro()) > u.epoch+1000 })
	r.restart()
}

// undone reports whether an entry has never been.
func (r *modelRoom) undone(p redisgroup.Position) bool {
	for _, u := range r.undos {
		if p.Compare(u.last) > 0 && p.Epoch <= u.epoch {
			return true
		}
	}
	return false
}

// finish says a last thing, which all who are there must hear, and compares all that was heard with
// the model.
func (r *modelRoom) finish() {
	r.t.Helper()
	// What is said while others' entries are on their way may come before them.
	outcomes := func() {
		testkit.Eventually(r.t, "all that was said has an outcome", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.ends == r.said
		})
	}
	outcomes()
	var last string
	testkit.Eventually(r.t, "a last thing is said", func() bool {
		last = r.say()
		outcomes()
		return !r.maybe[last]
	})
	for _, m := range r.members {
		testkit.Eventually(r.t, "everybody hears "+last, func() bool { return m.through(r.at(last), last) })
	}
	heard, gaps := 0, 0
	for i, m := range slices.Concat(r.members, r.gone) {
		m.mu.Lock()
		r.compare(m, i < len(r.members))
		heard, gaps = heard+len(m.heard), gaps+len(m.gaps)
		m.mu.Unlock()
	}
	r.t.Logf("%d said, %d taken, %d perhaps; %d heard by %d members, %d gaps told", r.said, len(r.taken), len(r.maybe), heard, len(r.members)+len(r.gone), gaps)
}

// at returns the position of what was taken.
func (r *modelRoom) at(text string) (at redisgroup.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, taken := range r.taken {
		if taken == text {
			at = p
		}
	}
	return at
}

// compare compares what a member has heard with the model, and if it is still there, also what not.
func (r *modelRoom) compare(m *modelMember, all bool) {
	for p, text := range m.heard {
		if r.taken[p] != text && !r.maybe[text] {
			r.t.Errorf("heard %s at %v, where the model has %q", text, p, r.taken[p])
		}
	}
	if !all {
		return
	}
	for p, text := range r.taken {
		if m.missed(p) && !r.undone(p) {
			r.t.Errorf("%s at %v was never heard, and no gap was told: began at %v, ended at %v, gaps %v", text, p, m.from, m.last, m.gaps)
		}
	}
}

// A room behaves like the model, whatever happens: members get each number once and in order, and a
// gap for each hole.
func TestOrderedModel(t *testing.T) {
	first, n := testkit.Seed(t, 1), uint64(3)
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		n = 5
	}
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			r := newModelRoom(t, first+i)
			for range 250 {
				r.step()
			}
			r.finish()
		})
	}
}
