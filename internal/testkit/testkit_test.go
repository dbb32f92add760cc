package testkit

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// recorded is a test that records how it ends.
type recorded struct {
	testing.TB
	failed   bool
	skipped  bool
	cleanups []func()
	said     string
}

func (r *recorded) Helper()          {}
func (r *recorded) Name() string     { return "TestSomething/4711" }
func (r *recorded) Failed() bool     { return r.failed }
func (r *recorded) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorded) Logf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func (r *recorded) Skipf(format string, args ...any) {
	r.skipped = true
	r.end(format, args)
}

func (r *recorded) Fatalf(format string, args ...any) {
	r.failed = true
	r.end(format, args)
}

func (r *recorded) end(format string, args []any) {
	r.said += fmt.Sprintf(format, args...)
	panic(r)
}

// run runs f as a test, with what it leaves to be cleaned up.
func (r *recorded) run(f func()) *recorded {
	defer func() {
		if p := recover(); p != nil && p != r {
			panic(p)
		}
		for _, f := range r.cleanups {
			f()
		}
	}()
	f()
	return r
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		for _, test := range []struct {
			name   string
			after  time.Duration
			failed bool
			said   string
		}{
			{"at once", 0, false, ""},
			{"in time", Patience - time.Second, false, ""},
			{"too late", Patience + time.Second, true, "after 1m0s, not yet: it holds"},
		} {
			from := time.Now()
			r := new(recorded)
			r.run(func() { Eventually(r, "it holds", func() bool { return time.Since(from) >= test.after }) })
			if r.failed != test.failed {
				t.Errorf("%s: failed %v, want %v", test.name, r.failed, test.failed)
			}
			if r.said != test.said {
				t.Errorf("%s: said %q, want %q", test.name, r.said, test.said)
			}
		}
		if got, limit := time.Since(begun), 2*Patience+time.Second; got > limit {
			t.Errorf("took %v, want at most %v", got, limit)
		}
	})
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan int, 1)
		go func() { Block(time.Second); ch <- 7 }()
		if got := Receive(t, "a number", ch); got != 7 {
			t.Errorf("got %d, want 7", got)
		}
		r := new(recorded)
		if r.run(func() { Receive(r, "a number", ch) }); r.said != "after 1m0s, not yet: a number" {
			t.Errorf("said %q", r.said)
		}
		close(ch)
		if got := Receive(t, "a number", ch); got != 0 {
			t.Errorf("got %d from a closed channel, want 0", got)
		}
	})
}

func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var done atomic.Bool
		go func() { Block(time.Second); done.Store(true) }()
		if Pass(time.Second - 1); done.Load() {
			t.Error("done too early")
		}
		if Pass(1); !done.Load() {
			t.Error("not done in time")
		}
		if got := time.Since(begun); got != time.Second {
			t.Errorf("%v have passed, want 1s", got)
		}
	})
}

func TestBlockOutsideBubble(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Block does not panic on the real clock")
		}
	}()
	Block(0)
}

func TestNeedFiles(t *testing.T) {
	for n, skips := range map[int]bool{1: false, fileLimit(): false, fileLimit() + 1: true} {
		r := new(recorded)
		if r.run(func() { NeedFiles(r, n) }); r.skipped != skips {
			t.Errorf("of %d files %d are needed: skipped %v, want %v", fileLimit(), n, r.skipped, skips)
		}
	}
}

// A port is held against other processes until the test is over, and no longer. A server may take
// it, and come back.
func TestFreePortIsHeld(t *testing.T) {
	var port int
	t.Run("during", func(t *testing.T) {
		port = FreePort(t)
		for range 2 {
			if !isFree(port) || !isFree(port+busOffset) {
				t.Errorf("%d is not free", port)
			}
		}
		if pc, err := net.ListenPacket("udp", loopback(port)); err == nil {
			_ = pc.Close()
			t.Errorf("%d is not held", port)
		}
	})
	pc, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		t.Fatalf("%d is still held: %v", port, err)
	}
	_ = pc.Close()
}

// What another process holds, or listens on, is passed over.
func TestFreePortPassesOver(t *testing.T) {
	held := portAfter(tried.Load() + 1)
	pc, err := net.ListenPacket("udp", loopback(held))
	if err != nil {
		t.Skip("another process is quicker: ", err)
	}
	defer pc.Close()
	busy := portAfter(tried.Load() + 2)
	ln, err := net.Listen("tcp", loopback(busy))
	if err != nil {
		t.Skip("another process is quicker: ", err)
	}
	defer ln.Close()
	if port := FreePort(t); port == held || port == busy {
		t.Errorf("%d is not free", port)
	}
}

func TestSocketPath(t *testing.T) {
	for _, name := range []string{"short", strings.Repeat("long", 20)} {
		t.Run(name, func(t *testing.T) {
			path := SocketPath(t)
			if len(path) > mostPath {
				t.Errorf("%s has %d bytes, want at most %d", path, len(path), mostPath)
			}
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			_ = ln.Close()
		})
	}
}

func TestCertificateFiles(t *testing.T) {
	cert := Certificate("localhost")
	back, err := tls.LoadX509KeyPair(CertificateFiles(t, cert))
	if err != nil {
		t.Fatal(err)
	}
	if !back.Leaf.Equal(cert.Leaf) {
		t.Error("the files have another certificate")
	}
}

func TestStalls(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	w := newStalls(at(0))
	for _, ms := range []int{5, 10, 110, 112, 140, 150} { // stood still from 10 to 110, and from 112 to 140
		w.note(at(ms))
	}
	for _, c := range []struct{ from, to, want int }{
		{0, 150, 128}, {0, 10, 0}, {20, 30, 10}, {100, 120, 18}, {110, 112, 0}, {140, 150, 0},
	} {
		if got, want := w.Within(at(c.from), at(c.to)), time.Duration(c.want)*time.Millisecond; got != want {
			t.Errorf("from %d to %d: got %v, want %v", c.from, c.to, got, want)
		}
	}
}

// A stretch that has just ended is known before Within returns.
func TestStallsWait(t *testing.T) {
	w := WatchStalls()
	for range 20 {
		now := time.Now()
		w.Within(now.Add(-time.Second), now)
		if w.mu.Lock(); w.last.Before(now) {
			t.Errorf("returned %v early", now.Sub(w.last))
		}
		w.mu.Unlock()
	}
	w.End()
	w.Within(time.Now(), time.Now().Add(time.Hour)) // does not wait for ever
}

// seeded returns the seed that a test gets with LOOPWHEEL_SEED set, and what it says in the end.
func seeded(t *testing.T, set string, failed bool) (got uint64, said string) {
	t.Setenv("LOOPWHEEL_SEED", set)
	t.Setenv("LOOPWHEEL_SLOW", "")
	r := &recorded{failed: failed}
	r.run(func() { got = Seed(r, 17) })
	return got, r.said
}

func TestSeed(t *testing.T) {
	const again = "LOOPWHEEL_SEED=23 go test -run '^TestSomething$' github.com/loopwheel/loopwheel/internal/testkit"
	for _, test := range []struct {
		set    string
		failed bool
		want   uint64
		said   string
	}{
		{"", false, 17, ""},
		{"18446744073709551615", false, 1<<64 - 1, ""},
		{"23", true, 23, "the seed was 23; to run it again: " + again},
		{"often", false, 0, `LOOPWHEEL_SEED must be a number or random: strconv.ParseUint: parsing "often": invalid syntax`},
	} {
		t.Run(test.set, func(t *testing.T) {
			got, said := seeded(t, test.set, test.failed)
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if said != test.said {
				t.Errorf("said %q, want %q", said, test.said)
			}
		})
	}
	t.Run("random", func(t *testing.T) {
		one, _ := seeded(t, "random", false)
		if other, _ := seeded(t, "random", false); one == other {
			t.Errorf("got %d twice", one)
		}
	})
}

func TestSelfSigned(t *testing.T) {
	from := time.Unix(1e9, 0)
	pair := SelfSigned(nil, from, from.Add(time.Hour), "localhost", "127.0.0.1", "::1")
	trust := x509.NewCertPool()
	trust.AddCert(pair.Leaf)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			opts := x509.VerifyOptions{Roots: trust, DNSName: name, CurrentTime: from.Add(time.Minute), KeyUsages: []x509.ExtKeyUsage{use}}
			if _, err := pair.Leaf.Verify(opts); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			opts.CurrentTime = from.Add(2 * time.Hour)
			if _, err := pair.Leaf.Verify(opts); err == nil {
				t.Errorf("%s: no error after it has expired", name)
			}
		}
	}
}

// A reset that connect(2) returns is what the connection reads. Any other error fails the test.
func TestDialReset(t *testing.T) {
	fails := func(err error) net.Dialer {
		return net.Dialer{Control: func(string, string, syscall.RawConn) error { return err }}
	}
	c := Dial(t, fails(syscall.ECONNRESET), "tcp", "127.0.0.1:1")
	_, read := c.Read(make([]byte, 1))
	WantErr(t, "Read", read, syscall.ECONNRESET)
	_, written := c.Write([]byte("x"))
	WantErr(t, "Write", written, syscall.ECONNRESET)
	WantErr(t, "Close", c.Close(), nil)
	r := &recorded{}
	r.run(func() { Dial(r, fails(syscall.EMFILE), "tcp", "127.0.0.1:1") })
	if !r.failed || !strings.Contains(r.said, syscall.EMFILE.Error()) {
		t.Errorf("failed %v, said %q; want a failure that says %q", r.failed, r.said, syscall.EMFILE.Error())
	}
}
