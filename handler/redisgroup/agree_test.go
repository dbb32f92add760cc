package redisgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// openOn opens a Hub on m, and ends it with the test.
func openOn(t *testing.T, m *miniredis.Miniredis, opt redis.Options) *Hub {
	t.Helper()
	opt.Addr = m.Addr()
	client := redis.NewClient(&opt)
	t.Cleanup(func() { client.Close() })
	h, err := Open(t.Context(), client, Config{Lazy: true, OnError: func(error) {}}) // its timeouts may be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Die(h) })
	return h
}

// A name that could not be released is given back once Redis answers, unless it is claimed again.
func TestReleaseIsMadeUpFor(t *testing.T) {
	m := miniredis.RunT(t)
	h := openOn(t, m, redis.Options{})
	ctx := t.Context()
	for _, name := range []string{"a", "b", "c"} {
		if err := h.Claim(ctx, name, "me"); err != nil {
			t.Fatal(err)
		}
	}
	m.SetError("LOADING it is away")
	for _, name := range []string{"a", "b"} {
		if err := h.Release(ctx, name, "me"); err == nil {
			t.Errorf("%s is released, though Redis is away", name)
		}
	}
	if err := h.Release(ctx, "nobody's", "me"); !errors.Is(err, ErrTaken) {
		t.Errorf("nobody's name is released: %v", err)
	}
	m.SetError("")
	if err := h.Claim(ctx, "b", "me"); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "all is given back", func() bool { return !Unsettled(h) })
	testkit.Eventually(t, "a is free", func() bool { return m.HGet(h.keys.claims(), "a") == "" })
	for _, name := range []string{"b", "c"} {
		if owner, _, err := h.Owner(ctx, name); owner != "me" {
			t.Errorf("%s is %q's: %v", name, owner, err)
		}
	}
}

// Claims that were not answered are given back.
func TestClaimsInDoubt(t *testing.T) {
	m := miniredis.RunT(t)
	h := openOn(t, m, redis.Options{})
	if err := h.Claim(t.Context(), "mine", "me"); err != nil {
		t.Fatal(err)
	}
	m.SetError("LOADING it is away")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = h.Claim(ended, "mine", "me") // it is mine whether or not
	for i := range 1000 {
		if h.Claim(ended, fmt.Sprint(i), "me") == nil {
			t.Fatalf("claim %d is granted", i)
		}
	}
	m.SetError("")
	testkit.Eventually(t, "all is given back", func() bool { return !Unsettled(h) })
	if names, err := m.HKeys(h.keys.claims()); err != nil || strings.Join(names, " ") != "mine" {
		t.Errorf("%q are claimed, %v", names, err)
	}
	if err := h.Claim(t.Context(), "another", "me"); err != nil {
		t.Error(err)
	}
}

// A claim whose answer did not come, and a release, change nothing for good if they arrive after
// what was asked next.
func TestLateQuestionsAreVoid(t *testing.T) {
	m := miniredis.RunT(t)
	late := &lateNet{}
	h := openOn(t, m, redis.Options{Dialer: late.dial, ReadTimeout: time.Minute})
	ask := func(f func(ctx context.Context, name, owner string) error, want error) {
		t.Helper()
		if err := f(t.Context(), "name", "me"); !errors.Is(err, want) {
			t.Errorf("it was answered %v, want %v", err, want)
		}
	}
	loses := func(f func(ctx context.Context, name, owner string) error) (arrive func()) {
		t.Helper()
		kept := late.keep("name")
		ask(f, errLate)
		return func() {
			close(kept)
			late.late.Wait()
		}
	}
	has := func(want bool) { // it may be given back again first
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("it is claimed: %v", want), func() bool { return (m.HGet(h.keys.claims(), "name") != "") == want })
	}
	ask(h.Claim, nil) // which has Redis know the script
	ask(h.Release, nil)
	arrive := loses(h.Claim)
	ask(h.Release, ErrTaken) // it is not there yet
	arrive()
	has(false)
	ask(h.Claim, nil)
	arrive = loses(h.Release)
	ask(h.Claim, nil)
	arrive()
	has(true)
	ask(h.Release, nil)
	has(false)
	ask(h.Release, ErrTaken) // it is nobody's
	ask(h.Claim, nil)
	arrive = loses(h.Claim) // it is ours whether or not
	ask(h.Release, nil)
	arrive()
	has(false)
}

// A lateConn has commands arrive late, and be answered never, now and then, as if the network had
// lost them for a while: also when it was closed meanwhile.
type lateConn struct {
	net.Conn
	net *lateNet
	mu  sync.Mutex
}

type lateNet struct {
	mu   sync.Mutex
	rng  *rand.Rand
	wild bool
	what []byte        // the next command that has it fails,
	kept chan struct{} // and arrives when this is closed
	late sync.WaitGroup
}

var errLate = errors.New("it is on its way")

// keep has the next command that has what in it arrive when what it returns is closed.
func (n *lateNet) keep(what string) chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.what, n.kept = []byte(what), make(chan struct{})
	return n.kept
}

// pick returns a function that waits while a command is lost, nil if it is not, and the error to
// expect.
func (n *lateNet) pick(command []byte) (wait func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.what) > 0 && bytes.Contains(command, n.what):
		n.what = nil
		kept := n.kept
		n.late.Add(1) // here, as tame waits for those that were picked before
		return func() { <-kept }, errLate
	case !n.wild || n.rng.IntN(4) > 0:
		return nil, nil
	}
	d := time.Duration(1 + n.rng.IntN(int(250*time.Millisecond)))
	n.late.Add(1)
	return func() { time.Sleep(d) }, nil // a network that is slow
}

func (n *lateNet) tame() {
	n.mu.Lock()
	n.wild = false
	n.mu.Unlock()
	n.late.Wait()
}

func (n *lateNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &lateConn{Conn: c, net: n}, err
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	wait, err := c.net.pick(b)
	if wait == nil {
		defer c.mu.Unlock()
		return c.Conn.Write(b)
	}
	b = append([]byte(nil), b...)
	go func() {
		defer c.net.late.Done()
		defer c.mu.Unlock() // Close waits for that, and what follows
		wait()
		_ = c.Conn.SetDeadline(time.Now().Add(time.Minute))
		if _, e := c.Conn.Write(b); e == nil && err != nil { // nobody else waits for the answer
			_, _ = c.Conn.Read(make([]byte, 1024))
		}
	}()
	return len(b), err
}

func (c *lateConn) Close() error {
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.Conn.Close()
	}()
	return nil
}

// Whatever becomes of commands and their answers, and in which order they arrive: at last Redis and
// the process agree on whose each name is.
func TestNamesOnALateNetwork(t *testing.T) {
	m := miniredis.RunT(t)
	h, late := openLate(t, m)
	const names, steps = 40, 6
	has := make([]bool, names) // according to the results of Claim
	var wg sync.WaitGroup
	for i := range names {
		rng := rand.New(rand.NewPCG(testkit.Seed(t, 2), uint64(i)))
		name := fmt.Sprint("name", i)
		wg.Go(func() {
			for range steps {
				if rng.IntN(2) == 0 {
					has[i] = h.Claim(t.Context(), name, "me") == nil || has[i]
				} else {
					_ = h.Release(t.Context(), name, "me")
					has[i] = false
				}
			}
		})
	}
	wg.Wait()
	late.tame()
	agreed(t, h, m, names)
	for i, has := range has {
		name := fmt.Sprint("name", i)
		if there := m.HGet(h.keys.claims(), name) != ""; there != has || (Claimed(h, name) != "") != has {
			t.Errorf("%s is claimed: %v, by the process: %v, by Redis: %v", name, has, Claimed(h, name) != "", there)
		}
	}
}

// openLate opens a Hub on m whose network loses commands for a while, from now on.
func openLate(t *testing.T, m *miniredis.Miniredis) (*Hub, *lateNet) {
	late := &lateNet{rng: rand.New(rand.NewPCG(testkit.Seed(t, 1), 1))}
	h := openOn(t, m, redis.Options{Dialer: late.dial, ReadTimeout: 50 * time.Millisecond})
	late.mu.Lock()
	defer late.mu.Unlock()
	late.wild = true
	return h, late
}

// agreed waits until h and m agree on names.
func agreed(t *testing.T, h *Hub, m *miniredis.Miniredis, names int) {
	t.Helper()
	testkit.Eventually(t, "Redis and the process agree", func() bool {
		if Unsettled(h) {
			return false
		}
		for i := range names {
			name := fmt.Sprint("name", i)
			if (Claimed(h, name) != "") != (m.HGet(h.keys.claims(), name) != "") {
				return false
			}
		}
		return true
	})
}
