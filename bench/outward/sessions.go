package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/stalls"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	manySessions = 100_000
	sessionIdle  = 30 * time.Second // longer than it takes to open them all, by what Stats calls recent
	floodIdle    = 10 * time.Second // so that in a flood sessions end, and others begin
	goodPeers    = 100
)

// An ender sees sessions end.
type ender struct {
	seen *seen
	id   uint32
}

// seen is what the enders of a loop have seen.
type seen struct {
	order []uint32
	turns turnClock
}

func (e *ender) OnMessage(c *loop.Conn, msg []byte) error {
	if len(msg) >= 4 {
		e.id = binary.BigEndian.Uint32(msg)
	}
	return c.Send(msg)
}

func (e *ender) OnClose(c *loop.Conn, _ error) {
	e.seen.order = append(e.seen.order, e.id)
	e.seen.turns.begin(c.Loop())
}

// udpSessions is an echo that tells, for each line of its input, what it knows of its sessions: for
// "heap" after a collection.
func udpSessions() { serveSessions(sessionIdle) }

func udpFlooded() { serveSessions(floodIdle) }

func serveSessions(idle time.Duration) {
	seen := &seen{order: make([]uint32, 0, 2*manySessions)}
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, IdleTimeout: idle,
		BlockedAfter: 8 * time.Millisecond, // so that each turn of 2 ms or more is measured
		Accept:       func(*loop.Conn) loop.Handler { return &ender{seen: seen} }}
	check(srv.Start(context.Background()))
	fmt.Println(srv.LocalAddr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m runtime.MemStats
		if in.Text() == "heap" {
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		back := make(chan string)
		_ = srv.Loops()[0].Post(func() {
			wrong := 0
			for i := 1; i < len(seen.order); i++ {
				if seen.order[i] < seen.order[i-1] {
					wrong++
				}
			}
			back <- fmt.Sprint(wrong, seen.turns.longest.Microseconds(), seen.turns.slow, seen.turns.n, seen.turns.between.Microseconds(), seen.turns.moved)
		})
		st := srv.Stats()
		slow, l := uint64(0), &st.Loops[0]
		for i, bound := range l.Turns.Bounds() {
			if bound >= 2*time.Millisecond {
				slow += l.Turns.Counts[i+1]
			}
		}
		fmt.Println(st.Conns, st.Closed, st.Refused, m.HeapAlloc, l.Turn.Microseconds(), slow, l.Turns.Total(), st.Lost, st.Panics, <-back)
	}
}

// sessionStats is what udpSessions tells: turn is the longest of the last 10 to 20 seconds, in
// microseconds, and slow how many of all turns took 2 ms or more. What follows wrong is the
// turnClock.
type sessionStats struct {
	open, closed, refused, heap, turn, slow, turns, lost, panics int

	wrong, cpu, cpuSlow, ending, between, moved int
}

func (p *process) sessions(what string) (s sessionStats) {
	fmt.Fprintln(p.in.(io.Writer), what)
	line := make([]byte, 200)
	n := must(p.out.Read(line))
	_ = must(fmt.Sscan(string(line[:n]), &s.open, &s.closed, &s.refused, &s.heap, &s.turn, &s.slow, &s.turns, &s.lost, &s.panics,
		&s.wrong, &s.cpu, &s.cpuSlow, &s.ending, &s.between, &s.moved))
	return s
}

// A source sends datagrams from addresses of 127.0.0.0/8, a new one each.
type source struct{ to syscall.SockaddrInet4 }

func newSource(addr string) *source {
	a := must(net.ResolveUDPAddr("udp4", addr))
	return &source{syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}}
}

// send sends one from the nth address. If wait is set it takes the answer.
func (s *source) send(n int, msg []byte, wait bool) {
	fd := must(syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0))
	defer syscall.Close(fd)
	n += 1 << 16 // 127.1.0.0
	check(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)}}))
	check(syscall.Sendto(fd, msg, 0, &s.to))
	if wait {
		check(syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 5}))
		err := error(syscall.EINTR)
		for err == syscall.EINTR { // Go's runtime interrupts who waits with a timeout
			_, _, err = syscall.Recvfrom(fd, make([]byte, 100), 0)
		}
		check(err)
	}
}

// benchSessions opens 100,000 sessions, and sees them end by their idle timeout.
func benchSessions() {
	for range *turns {
		p := start("udp-sessions", "GOMAXPROCS=2") // the collector's goroutines need one, too
		machine := watchMachine()
		empty := p.sessions("heap")
		src := newSource(p.addr)
		begun := time.Now()
		var msg [4]byte
		for i := range manySessions {
			binary.BigEndian.PutUint32(msg[:], uint32(i))
			src.send(i, msg[:], i%50 == 49) // so that the socket's buffer suffices
		}
		took := time.Since(begun)
		opened := p.sessions("")
		full := p.sessions("heap")
		opening := machine()
		machine = watchMachine()
		control := worker()
		for end := time.Now().Add(4 * sessionIdle); p.sessions("").open > 0 && time.Now().Before(end); {
			time.Sleep(200 * time.Millisecond)
		}
		st := p.sessions("")
		fmt.Printf("UDP sessions: %d open after %.1f s, %d bytes each; %d idle out, %d out of order\n",
			full.open, took.Seconds(), (full.heap-empty.heap)/max(1, full.open), st.closed, st.wrong)
		fmt.Printf("  while they were opened: the longest turn %.2f ms, %d of 2 ms and more of %d\n",
			float64(opened.turn)/1e3, opened.slow, opened.turns)
		fmt.Println("    the machine:", opening)
		fmt.Printf("  while they idle out:    the longest turn %.2f ms, %d of 2 ms and more of %d\n",
			float64(st.turn)/1e3, st.slow-full.slow, st.turns-full.turns)
		fmt.Printf("    by the CPU clock of the loop's thread %d of %d, the longest %.2f ms, with all that the thread did since the turn before %.2f (%d began on another)\n",
			st.cpuSlow, st.ending, float64(st.cpu)/1e3, float64(st.between)/1e3, st.moved)
		fmt.Println("    a bare thread that works 1 ms at a time:", control())
		fmt.Println("    the machine:", machine())
		p.stop()
	}
}

// flooder sends datagrams to each address that it is told, as many as it is told, each from an
// address of its own.
func flooder() {
	rounds(func(line string) {
		var addr string
		var sources int
		_ = must(fmt.Sscan(line, &addr, &sources))
		src := newSource(addr)
		for i := range sources {
			src.send(i, []byte("spoofed!"), false)
		}
	})
}

// benchFlood measures good peers while another socket of the machine is flooded, which costs the
// machine as much, and while theirs is: in turns, of which the medians are compared.
func benchFlood() {
	aside := must(net.ListenPacket("udp", "127.0.0.1:0"))
	defer aside.Close()
	p := start("udp-flooded", "GOMAXPROCS=2")
	defer p.stop()
	peers := make([]net.Conn, goodPeers)
	for i := range peers {
		peers[i] = must(net.Dial("udp", p.addr))
		_ = must(peers[i].Write(make([]byte, 64)))
		_ = must(peers[i].Read(make([]byte, 100))) // or each answer would be taken for the next one's
	}
	f := start("flooder")
	defer f.stop()
	asked := p.flooded("no flood", peers, func() { time.Sleep(2 * time.Second) })
	fmt.Println(asked)
	flood := func(what, addr string) answers {
		took := p.flooded(what, peers, func() {
			fmt.Fprintln(f.in.(io.Writer), addr, *sources)
			_ = must(f.out.Read(make([]byte, 10)))
		})
		fmt.Println(took)
		return took
	}
	var others, own [3]figures // median, p90, p99
	for range *turns {
		flood("another socket", aside.LocalAddr().String()).note(&others)
		flood("theirs", p.addr).note(&own)
	}
	for i, what := range []string{"median", "p90", "p99"} {
		fmt.Printf("UDP, %d peers, flood of %d sources: %-6s of another socket %s µs, of theirs %s µs, %.2f\n",
			goodPeers, *sources, what, others[i], own[i], own[i].median()/others[i].median())
	}
}

// answers are how long answers took, sorted, and what was the case meanwhile.
type answers struct {
	took  []time.Duration
	about string
}

func (a answers) String() string { return a.about }

// note adds the median, p90 and p99, in microseconds.
func (a answers) note(to *[3]figures) {
	for i, part := range []int{50, 90, 99} {
		to[i] = append(to[i], a.at(part))
	}
}

func (a answers) at(part int) float64 { return float64(a.took[len(a.took)*part/100]) / 1e3 }

// flooded has peers ask until flood returns.
func (p *process) flooded(what string, peers []net.Conn, flood func()) answers {
	over, begun := make(chan struct{}), time.Now()
	before, dropped, cpu, waited := p.sessions(""), drops(p.addr), p.cpu(), p.waited()
	machine := watchMachine()
	go func() {
		defer close(over)
		flood()
	}()
	a := answers{}
	var lost int
	a.took, lost = ask(peers, over)
	late, st := machine(), p.sessions("")
	a.about = fmt.Sprintf("UDP, %d peers, flooded: %-14s %4.1f s: median %.0f µs, p90 %.0f, p99 %.0f, worst %.0f of %d, %d lost; %d sessions, %d refused, %d dropped, %d by the kernel; %d turns, %d of 2 ms and more; the server's CPU %.2f s, for which it waited %.2f s\n  the machine: %s",
		len(peers), what, time.Since(begun).Seconds(), a.at(50), a.at(90), a.at(99), float64(a.took[len(a.took)-1])/1e3, len(a.took), lost,
		st.open, st.refused-before.refused, st.lost-before.lost, drops(p.addr)-dropped,
		st.turns-before.turns, st.slow-before.slow, (p.cpu() - cpu).Seconds(), (p.waited() - waited).Seconds(), late)
	return a
}

// watchMachine watches what bare threads see, until what it returns is called, which describes it.
func watchMachine() (end func() string) {
	check(os.Setenv("OUTWARD_SERVER", "stalls"))
	w := must(stalls.Watch())
	check(os.Unsetenv("OUTWARD_SERVER"))
	return func() string { return stalls.Describe(w.Stop()) }
}

// ask has each peer ask a hundred times a second, each at a time of its own, until over is closed,
// and returns how long each answer took, sorted, and how many did not come within a second.
func ask(peers []net.Conn, over chan struct{}) (took []time.Duration, lost int) {
	const every = 10 * time.Millisecond
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, c := range peers {
		wg.Go(func() {
			time.Sleep(every * time.Duration(i) / time.Duration(len(peers)))
			msg := make([]byte, 64)
			for tick, n := time.NewTicker(every), uint64(1); ; n++ {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				begun := time.Now()
				_ = c.SetReadDeadline(begun.Add(time.Second))
				binary.BigEndian.PutUint64(msg[8:], n)
				_ = must(c.Write(msg))
				err := answered(c, n)
				mu.Lock()
				if took = append(took, time.Since(begun)); err != nil {
					lost++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took, lost
}

// answered reads until the nth answer has come: earlier ones may be late.
func answered(c net.Conn, n uint64) error {
	buf := make([]byte, 100)
	for {
		if _, err := c.Read(buf); err != nil {
			return err
		}
		if binary.BigEndian.Uint64(buf[8:]) == n {
			return nil
		}
	}
}

// drops returns how many datagrams the kernel has dropped as there was no room for them, at an
// address of this machine.
func drops(addr string) (n int) {
	a := must(net.ResolveUDPAddr("udp4", addr))
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
	for line := range strings.Lines(string(must(os.ReadFile("/proc/net/udp")))) {
		if f := strings.Fields(line); len(f) > 12 && f[1] == local {
			n += must(strconv.Atoi(f[12]))
		}
	}
	return n
}
