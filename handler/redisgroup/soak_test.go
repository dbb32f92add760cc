//go:build unix

package redisgroup_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// nodeEnv makes the test binary be a node on that Redis.
const nodeEnv = "LOOPWHEEL_TEST_NODE"

// clusterOf precedes the address of a server that is one of a cluster.
const clusterOf = "cluster "

// leaseEnv is that node's lease.
const leaseEnv = "LOOPWHEEL_TEST_LEASE"

func TestMain(m *testing.M) {
	if addr := os.Getenv(nodeEnv); addr != "" {
		beNode(addr)
		return
	}
	os.Exit(m.Run())
}

// beNode is what a node does that can be killed.
func beNode(addr string) {
	t := &outsideTest{}
	lease, err := time.ParseDuration(os.Getenv(leaseEnv))
	if err != nil {
		lease = 2 * time.Second
	}
	var client redis.UniversalClient
	if seed, ok := strings.CutPrefix(addr, clusterOf); ok {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{seed}})
	} else {
		client = redis.NewClient(&redis.Options{Addr: addr})
	}
	n := startNode(t, client, redisgroup.Config{Lease: lease})
	fmt.Println(n.srv.LocalAddr())
	select {}
}

// outsideTest is what a node needs of a test.
type outsideTest struct{ testing.TB }

func (*outsideTest) Helper()                  {}
func (*outsideTest) Cleanup(func())           {}
func (*outsideTest) Context() context.Context { return context.Background() }
func (*outsideTest) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

// A child is a node that is a process.
type child struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	addr string
}

func startChild(t *testing.T, redis string) *child {
	c := &child{}
	c.start(t, redis)
	t.Cleanup(c.kill)
	return c
}

func (c *child) start(t *testing.T, redis string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+redis)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd, c.addr = cmd, strings.TrimSpace(line)
}

// dial returns a connection to c.
func (c *child) dial(t *testing.T) *client {
	t.Helper()
	conn, err := net.Dial("tcp", c.where())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) where() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addr
}

// A traveller is a client that goes to another process when it loses its own, with the last number
// it has.
type traveller struct {
	id, home int
	room     string
	children []*child

	mu                             sync.Mutex // of what it heard
	moves, got, gaps, holes, twice int
	last                           redisgroup.Position
	heard                          redisgroup.Position // the last message
	seen                           map[string]int
	said                           int
	wrong                          string
}

// travel runs until ctx is done and everything has been heard.
func (v *traveller) travel(ctx context.Context, talks *talking) {
	random := rand.New(rand.NewPCG(uint64(v.id), 1))
	for ctx.Err() == nil {
		v.visit(ctx, v.children[v.home%len(v.children)].where(), talks)
		v.home++
		v.moves++
		time.Sleep(20*time.Millisecond + time.Duration(random.Int64N(int64(100*time.Millisecond)))) // as clients do that reconnect
	}
}

// visit is one connection.
func (v *traveller) visit(ctx context.Context, addr string, talks *talking) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	fmt.Fprintf(c, "bind u%d\n", v.id)
	if v.last.IsZero() {
		fmt.Fprintf(c, "history %s 0\n", v.room)
	} else {
		fmt.Fprintf(c, "since %s %v\n", v.room, v.last)
	}
	done := make(chan struct{})
	defer close(done)
	go v.talk(c, done, talks, rand.New(rand.NewPCG(uint64(v.id), uint64(2+v.moves))))
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		v.mu.Lock()
		v.take(strings.Fields(line))
		v.mu.Unlock()
	}
}

// talk says something now and then.
func (v *traveller) talk(c net.Conn, done chan struct{}, talks *talking, random *rand.Rand) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Second + time.Duration(random.Int64N(int64(time.Second)))):
		}
		talks.unlessOver(func() {
			v.said++
			fmt.Fprintf(c, "osay %s %d:%d\n", v.room, v.id, v.said)
		})
	}
}

func (v *traveller) take(f []string) {
	switch f[0] {
	case "arrived":
		if f[3] == "gap=true" {
			v.gaps++
			v.last = redisgroup.Position{} // it got the gap
		}
		if v.last.IsZero() && f[2] == "0" {
			v.last, _ = redisgroup.ParsePosition(f[1])
		}
		return
	case "gap":
		v.gaps++
		v.last = redisgroup.Position{}
		return
	case "msg", "in", "out":
	default:
		return
	}
	p, err := redisgroup.ParsePosition(f[2])
	if err != nil {
		v.wrong = strings.Join(f, " ")
		return
	}
	if !v.last.IsZero() && p.Epoch == v.last.Epoch && p.Number != v.last.Number+1 {
		v.holes++
		v.wrong = fmt.Sprintf("%v after %v", p, v.last)
	}
	if !v.last.IsZero() && p.Epoch != v.last.Epoch && p.Number != 1 {
		v.holes++
		v.wrong = fmt.Sprintf("%v after %v", p, v.last)
	}
	v.last = p
	if f[0] == "msg" {
		v.got++
		v.heard = p
		if v.seen[f[3]]++; v.seen[f[3]] > 1 {
			v.twice++
		}
	}
}

// talking is whether travellers may say something.
type talking struct {
	mu   sync.RWMutex
	over bool
}

func (k *talking) unlessOver(say func()) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if !k.over {
		say()
	}
}

// end returns when the last has spoken.
func (k *talking) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
}

// quiet waits until all members of each room have heard the same, and nothing new came in a hundred
// looks.
func quiet(t *testing.T, all []*traveller) {
	before, looks := 0, 0
	testkit.Eventually(t, "all have heard the same", func() bool {
		got, same := 0, true
		ends := make(map[string]redisgroup.Position)
		for _, v := range all {
			v.mu.Lock()
			end, ok := ends[v.room]
			same = same && (!ok || end == v.heard)
			ends[v.room], got = v.heard, got+v.got
			v.mu.Unlock()
		}
		if looks++; !same || got != before {
			looks = 0
		}
		before = got
		return looks >= 100
	})
}

// Three processes with 300 clients each in 20 ordered rooms. One process is killed and started
// again three times, and Redis once: each client that comes back with its last number sees every
// number exactly once, in order.
func TestSoak(t *testing.T) {
	redistest.Need(t)
	const rooms, perChild = 20, 300
	testkit.NeedFiles(t, 3*perChild+300)
	r := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	soak := soakTime(t, 6*time.Second)
	var children []*child
	for range 3 {
		children = append(children, startChild(t, r.Addr))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var talks talking
	var wg sync.WaitGroup
	var all []*traveller
	for i := range 3 * perChild {
		v := &traveller{id: i, home: i % 3, room: fmt.Sprintf("room%d", i%rooms), children: children, seen: make(map[string]int)}
		all = append(all, v)
		wg.Go(func() { v.travel(ctx, &talks) })
	}
	present := newPresence(t, r, rooms, len(all))
	tick := time.Tick(soak / 5) // LOOPWHEEL_SOAK says for how long they talk
	for i := range 5 {
		<-tick
		switch i {
		case 2:
			r.Kill()
			r.Start()
		case 4:
			continue
		default:
			children[i%3].kill()
			children[i%3].start(t, r.Addr)
		}
		present.right()
	}
	talks.end()
	quiet(t, all)
	cancel()
	wg.Wait()
	classify(t, all)
}

// classify wants all members of a room to have heard the same, once.
func classify(t *testing.T, all []*traveller) {
	t.Helper()
	got, moves, gaps, bad := 0, 0, 0, 0
	ends := make(map[string]redisgroup.Position)
	for _, v := range all {
		got, moves, gaps = got+v.got, moves+v.moves, gaps+v.gaps
		if v.holes+v.twice > 0 {
			if bad++; bad < 5 {
				t.Errorf("client %d: %d holes, %d twice: %s", v.id, v.holes, v.twice, v.wrong)
			}
		}
		if end, ok := ends[v.room]; ok && end != v.heard {
			t.Errorf("client %d ended at %v, another of %s at %v", v.id, v.heard, v.room, end)
		}
		ends[v.room] = v.heard
	}
	t.Logf("%d messages heard by %d clients, %d reconnections, %d gaps told", got, len(all), moves-len(all), gaps)
	if got < len(all)*10 || gaps > 0 {
		t.Errorf("%d messages heard, %d gaps told; want many, and none", got, gaps)
	}
}

// A presence asks who is in all rooms.
type presence struct {
	t     *testing.T
	hub   *redisgroup.Hub
	rooms int
	users int
}

func newPresence(t *testing.T, r *redistest.Server, rooms, users int) *presence {
	// With Lazy, a machine that is too busy to make a connection in time is no failure.
	hub, err := redisgroup.Open(t.Context(), r.Client(), redisgroup.Config{Lease: 2 * time.Second, Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close(context.Background()) })
	return &presence{t, hub, rooms, users}
}

// right waits until everybody is present.
func (p *presence) right() {
	p.t.Helper()
	testkit.Eventually(p.t, fmt.Sprint(p.users, " users are present"), func() bool {
		n := 0
		for i := range p.rooms {
			o, _ := p.hub.Ordered(fmt.Sprintf("room%d", i))
			k, _ := o.Count(p.t.Context())
			n += k
		}
		return n == p.users
	})
}
