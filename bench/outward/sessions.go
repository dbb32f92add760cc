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
	order *[]uint32
	id    uint32
}

func (e *ender) OnMessage(c *loop.Conn, msg []byte) error {
	if len(msg) >= 4 {
		e.id = binary.BigEndian.Uint32(msg)
	}
	return c.Send(msg)
}

func (e *ender) OnClose(*loop.Conn, error) { *e.order = append(*e.order, e.id) }

// udpSessions is an echo that tells, for each line of its input, what it knows of its sessions: for
// "heap" after a collection.
func udpSessions() { serveSessions(sessionIdle) }

func udpFlooded() { serveSessions(floodIdle) }

func serveSessions(idle time.Duration) {
	order := make([]uint32, 0, 2*manySessions)
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", NumLoops: 1, IdleTimeout: idle,
		BlockedAfter: 8 * time.Millisecond, // so that each turn of 2 ms or more is measured
		Accept:       func(*loop.Conn) loop.Handler { return &ender{order: &order} }}
	check(srv.Start(context.Background()))
	fmt.Println(srv.LocalAddr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m runtime.MemStats
		if in.Text() == "heap" {
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		back := make(chan int)
		_ = srv.Loops()[0].Post(func() {
			wrong := 0
			for i := 1; i < len(order); i++ {
				if order[i] < order[i-1] {
					wrong++
				}
			}
			back <- wrong
		})
		st := srv.Stats()
		slow, l := uint64(0), &st.Loops[0]
		for i, n := range l.Turns.Counts {
			if i > 0 && loop.HistogramBound(i-1) >= 2*time.Millisecond {
				slow += n
			}
		}
		fmt.Println(st.Conns, st.Closed, st.Refused, m.HeapAlloc, <-back, l.Turn.Microseconds(), slow, l.Turns.Total(), st.Lost, st.Panics)
	}
}

// sessionStats is what udpSessions tells: turn is the longest of the last 10 to 20 seconds, in
// microseconds, and slow how many of all turns took 2 ms or more.
type sessionStats struct {
	open, closed, refused, heap, wrong, turn, slow, turns, lost, panics int
}

func (p *process) sessions(what string) (s sessionStats) {
	fmt.Fprintln(p.in.(io.Writer), what)
	line := make([]byte, 200)
	n := must(p.out.Read(line))
	_ = must(fmt.Sscan(string(line[:n]), &s.open, &s.closed, &s.refused, &s.heap, &s.wrong, &s.turn, &s.slow, &s.turns, &s.lost, &s.panics))
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
		for end := time.Now().Add(4 * sessionIdle); p.sessions("").open > 0 && time.Now().Before(end); {
			time.Sleep(200 * time.Millisecond)
		}
		st := p.sessions("")
		fmt.Printf("UDP sessions: %d open after %.1f s, %d bytes each; %d idle out, %d out of order\n",
			full.open, took.Seconds(), (full.heap-empty.heap)/max(1, full.open), st.closed, st.wrong)
		fmt.Printf("  while they were opened: the longest turn %.2f ms, %d of 2 ms and more of %d\n",
			float64(opened.turn)/1e3, opened.slow, opened.turns)
		fmt.Printf("  while they idle out:    the longest turn %.2f ms, %d of 2 ms and more of %d\n",
			float64(st.turn)/1e3, st.slow-full.slow, st.turns-full.turns)
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

// benchFlood measures good peers without a flood, with one of another socket, which costs the
// machine as much, and with one of theirs.
func benchFlood() {
	aside := must(net.ListenPacket("udp", "127.0.0.1:0"))
	defer aside.Close()
	for range *turns {
		p := start("udp-flooded", "GOMAXPROCS=2")
		peers := make([]net.Conn, goodPeers)
		for i := range peers {
			peers[i] = must(net.Dial("udp", p.addr))
			_ = must(peers[i].Write(make([]byte, 64)))
		}
		f := start("flooder")
		for _, to := range []string{"", aside.LocalAddr().String(), p.addr} {
			over := make(chan struct{})
			begun := time.Now()
			go func() {
				defer close(over)
				if to == "" {
					time.Sleep(5 * time.Second)
					return
				}
				fmt.Fprintln(f.in.(io.Writer), to, *sources)
				_ = must(f.out.Read(make([]byte, 10)))
			}()
			before, dropped, cpu := p.sessions(""), drops(p.addr), p.cpu()
			took, lost := ask(peers, over)
			st := p.sessions("")
			what := map[string]string{"": "no flood", p.addr: "flooded"}[to]
			if what == "" {
				what = "another socket flooded"
			}
			fmt.Printf("UDP, %d peers, %-22s %4.1f s: median %v, p90 %v, p99 %v, worst %v of %d, %d lost; %d sessions, %d refused, %d dropped, %d by the kernel; %d turns of 2 ms and more of %d, lately %.1f ms; the server's CPU %.2f s\n",
				goodPeers, what, time.Since(begun).Seconds(), took[len(took)/2], took[len(took)*9/10], took[len(took)*99/100], took[len(took)-1],
				len(took), lost, st.open, st.refused-before.refused, st.lost-before.lost, drops(p.addr)-dropped,
				st.slow-before.slow, st.turns-before.turns, float64(st.turn)/1e3, (p.cpu() - cpu).Seconds())
		}
		f.stop()
		p.stop()
	}
}

// ask has each peer ask a hundred times a second until over is closed, and returns how long each
// answer took, sorted, and how many did not come within a second.
func ask(peers []net.Conn, over chan struct{}) (took []time.Duration, lost int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range peers {
		wg.Go(func() {
			buf := make([]byte, 100)
			for tick := time.NewTicker(10 * time.Millisecond); ; {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				begun := time.Now()
				_ = c.SetReadDeadline(begun.Add(time.Second))
				_ = must(c.Write(make([]byte, 64)))
				_, err := c.Read(buf)
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

// drops returns how many datagrams the kernel has dropped as there was no room for them, at an address
// of this machine.
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
