package loop_test

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Many new peers come at once, whose sessions are dear, beside one who has a session: few of them
// are opened between his question and the answer, and all are in the end, or are counted.
func TestUDPNewcomersLeaveTheLoopToOthers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8, as Linux has it")
	}
	bothEngines(t, testUDPNewcomersLeaveTheLoopToOthers)
}

func testUDPNewcomersLeaveTheLoopToOthers(t *testing.T, ctx context.Context) {
	const rounds, crowd, cost = 20, 150, 100 * time.Microsecond
	var opened atomic.Int64
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
		for began := time.Now(); time.Since(began) < cost; {
		}
		opened.Add(1)
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
			return c.Send(binary.BigEndian.AppendUint64(nil, uint64(opened.Load())))
		})
	}}
	startWith(t, ctx, srv)
	good := dialUDP(t, srv.LocalAddr())
	good.ask([]byte("hello"))
	var between []int64
	for n := range rounds {
		for i := range crowd {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 1, byte(n), byte(i))}, srv.LocalAddr().(*net.UDPAddr))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("me, too")); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		before := opened.Load()
		between = append(between, int64(binary.BigEndian.Uint64(good.ask([]byte("and I?"))))-before)
	}
	slices.Sort(between)
	t.Logf("sessions opened between a question and its answer: median %d, at most %d", between[rounds/2], between[rounds-1])
	// A share is 5, a batch 64. Where a goroutine reads, the loop goes on while that has no core.
	if isOnEpoll(t) && between[rounds/2] > 25 {
		t.Errorf("%d sessions were opened between a question and its answer, in the median",
			between[rounds/2])
	}
	st := srv.Stats()
	whole := func() bool { return st.Sessions+st.Lost >= 1+rounds*crowd && st.Conns == int(opened.Load()) }
	for end := time.Now().Add(patience); !whole() && time.Now().Before(end); st = srv.Stats() {
		time.Sleep(time.Millisecond)
	}
	if st.Refused != 0 || st.Conns != int(opened.Load()) || st.Sessions+st.Lost != 1+rounds*crowd {
		t.Errorf("%d sessions, %d open, %d refused, %d lost of %d", st.Sessions, st.Conns, st.Refused, st.Lost, 1+rounds*crowd)
	}
}

// Beyond few sessions new peers have a sixteenth of the time, however many come; who has a session
// is answered meanwhile.
func TestUDPCrowdLeavesTimeToOthers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs all of 127.0.0.0/8, as Linux has it")
	}
	bothEngines(t, testUDPCrowdLeavesTimeToOthers)
}

func testUDPCrowdLeavesTimeToOthers(t *testing.T, ctx context.Context) {
	const few, crowd, cost, saved, share = 20, 300, 100 * time.Microsecond, 4 * time.Millisecond, 500 * time.Microsecond
	var opened atomic.Int64
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, MaxSessions: few * 16,
		Accept: func(*loop.Conn) loop.Handler {
			for began := time.Now(); time.Since(began) < cost; {
			}
			opened.Add(1)
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		}}
	startWith(t, ctx, srv)
	good := dialUDP(t, srv.LocalAddr())
	good.ask([]byte("hello"))
	begun := time.Now()
	for n := range crowd - 1 {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 2, byte(n>>8), byte(n))}, srv.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("me, too")); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for end := time.Now().Add(patience); opened.Load() < crowd && time.Now().Before(end); {
		good.ask([]byte("and I?"))
	}
	took, least := time.Since(begun), 16*((crowd-few)*cost-saved-2*share)
	if t.Logf("all were opened after %v", took); took < least {
		t.Errorf("%d were opened in %v, want %v at least", crowd, took, least)
	}
	if st := srv.Stats(); opened.Load() != crowd || st.Lost != 0 {
		t.Errorf("%d of %d were opened in the end, %d lost", opened.Load(), crowd, st.Lost)
	}
}
