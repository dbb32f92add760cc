//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/loop"
)

// watchPeers watch over connections in different ways, or do not.
var watchPeers = []peer{
	{name: "loopwheel-timeout", title: "loopwheel, IdleTimeout", serve: func(s setup) error { return serveTimeout(s, s.timeout) }},
	{name: "loopwheel-none", title: "loopwheel, no timeout", serve: func(s setup) error { return serveTimeout(s, 0) }},
	{name: "gnet-none", title: "gnet, no timeout", serve: func(s setup) error { return serveGnet(s, &gnetServer{}) }},
	{name: "gnet-scan", title: "gnet, a table with a mutex, scanned each second", serve: serveGnetScan},
	{name: "net", title: "net, SetReadDeadline", serve: serveNet},
	floorPeers[2],
}

// serveTimeout differs from loopwheel without a timeout in nothing else.
func serveTimeout(s setup, timeout time.Duration) error {
	return runLoopwheel(s, &loop.Server{IdleTimeout: timeout, Accept: func(*loop.Conn) loop.Handler { return echoer{} }})
}

// scanServer is what gnet's users build by hand: a table of last activities with a mutex, through
// which OnTick walks each second, on a goroutine of its own.
type scanServer struct {
	gnetServer
	timeout time.Duration
	mu      sync.Mutex
	last    map[gnet.Conn]time.Time
}

func (s *scanServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s.touch(c)
	return nil, gnet.None
}

func (s *scanServer) OnTraffic(c gnet.Conn) gnet.Action {
	s.touch(c)
	return s.gnetServer.OnTraffic(c)
}

func (s *scanServer) touch(c gnet.Conn) {
	s.mu.Lock()
	s.last[c] = time.Now()
	s.mu.Unlock()
}

func (s *scanServer) OnClose(c gnet.Conn, _ error) gnet.Action {
	s.mu.Lock()
	delete(s.last, c)
	s.mu.Unlock()
	return gnet.None
}

func (s *scanServer) OnTick() (time.Duration, gnet.Action) {
	s.mu.Lock()
	for c, last := range s.last {
		if time.Since(last) > s.timeout {
			_ = c.Close()
		}
	}
	s.mu.Unlock()
	return time.Second, gnet.None
}

func serveGnetScan(s setup) error {
	return serveGnet(s, &scanServer{timeout: s.timeout, last: make(map[gnet.Conn]time.Time)}, gnet.WithTicker(true))
}

const (
	silentEvery = 100 // one in so many falls silent
	watchSize   = 64  // bytes of a message here
)

// A watch is what it cost to watch over idle connections.
type watch struct {
	title           string
	cpu             []float64 // microseconds per message
	lateness        measure.Histogram
	evicted, silent int
}

// watchAll has many connections that say something once a second, and some that stop to. Each
// server has them for a whole timeout, one server after the other.
func (o *options) watchAll(servers []*server) error {
	watches := make([]watch, len(servers))
	for round := range o.rounds {
		for i := range servers {
			k := (i + round) % len(servers)
			measure.Progress("round %d of %d, %v: %s", round+1, o.rounds, o.timeout+2*time.Second, servers[k].Name)
			watches[k].title = servers[k].peer.title
			if err := o.watch(servers[k], &watches[k]); err != nil {
				return fmt.Errorf("%s: %w", servers[k].Name, err)
			}
		}
	}
	measure.Progress("")
	t := measure.Table{{"", "CPU µs per message", "evicted", "late by: median", "worst"}}
	for _, w := range watches {
		l := &w.lateness
		t = append(t, []string{w.title, measure.SpreadOf(w.cpu).String(), fmt.Sprintf("%d of %d", w.evicted, w.silent),
			measure.Short(l.Quantile(0.5)).String(), measure.Short(l.Quantile(1 - 1e-9)).String()})
	}
	fmt.Printf("%d connections, a message of each per second, timeout %v\n\n", o.idlers, o.timeout)
	t.Print(os.Stdout)
	return nil
}

var errStoodStill = errors.New("the machine stood still for so long that clients fell silent that should not, ten times")

// watch measures again if the machine stood still, so that clients fell silent that should not.
func (o *options) watch(s *server, w *watch) (err error) {
	for range 10 {
		if err = o.watchOnce(s, w); !errors.Is(err, errStoodStill) {
			break
		}
	}
	return err
}

func (o *options) watchOnce(s *server, w *watch) error {
	begun := time.Now()
	conns, err := connect(s.Addr, o.idlers, false)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	c := &crowd{conns: conns, last: make([]time.Time, len(conns)), ended: make([]time.Time, len(conns))}
	var readers sync.WaitGroup
	for i := range conns {
		c.last[i] = begun
		readers.Go(func() { c.read(i) })
	}
	cpu := s.CPU()
	c.talk(o.timeout + 2*time.Second)
	soon(func() bool { return c.answered.Load() >= c.enough() })
	cpu = s.CPU() - cpu
	silent := int64((len(conns) + silentEvery - 1) / silentEvery)
	if !strings.HasSuffix(s.Name, "none") { // the server is late if the machine stood still
		soon(func() bool { return c.evicted.Load() >= silent })
	}
	c.leaving.Store(true)
	closeAll(conns)
	readers.Wait()
	if c.silence >= o.timeout {
		return errStoodStill
	}
	if answered := c.answered.Load(); answered < c.enough() {
		return fmt.Errorf("%d of %d messages were answered", answered, c.sent)
	}
	w.cpu = append(w.cpu, float64(cpu.Nanoseconds())/1e3/float64(c.sent))
	for i := 0; i < len(conns); i += silentEvery {
		w.silent++
		if !c.ended[i].IsZero() {
			w.evicted++
			w.lateness.Add(c.ended[i].Sub(c.last[i].Add(o.timeout)))
		}
	}
	return nil
}

// soon waits until something is so, for ten seconds at most.
func soon(so func() bool) {
	for end := time.Now().Add(10 * time.Second); !so() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// A crowd is connections of which one in silentEvery says one thing, and the others one thing a
// second.
type crowd struct {
	conns    []net.Conn
	last     []time.Time   // when each said something last
	silence  time.Duration // the longest before something was said
	ended    []time.Time   // when the server closed it
	sent     int
	answered atomic.Int64
	evicted  atomic.Int64
	leaving  atomic.Bool
}

// enough is how many answers there must be.
func (c *crowd) enough() int64 { return int64(c.sent) * 99 / 100 }

// talk sends for d, evenly over each second.
func (c *crowd) talk(d time.Duration) {
	frame, begun := frame(watchSize), time.Now()
	for k := 0; ; k++ {
		due := time.Duration(k) * time.Second / time.Duration(len(c.conns))
		if due > d {
			return
		}
		if wait := due - time.Since(begun); wait > time.Millisecond {
			time.Sleep(wait)
		}
		i := k % len(c.conns)
		if i%silentEvery == 0 && k >= len(c.conns) {
			continue
		}
		now := time.Now()
		if _, err := c.conns[i].Write(frame); err == nil {
			c.sent++
		}
		c.silence = max(c.silence, time.Since(c.last[i]))
		c.last[i] = now
	}
}

// read counts answers until the server closes, and notes when that was.
func (c *crowd) read(i int) {
	answer := make([]byte, header+watchSize)
	for {
		if _, err := io.ReadFull(c.conns[i], answer); err != nil {
			if !c.leaving.Load() {
				c.ended[i] = time.Now()
				c.evicted.Add(1)
			}
			return
		}
		c.answered.Add(1)
	}
}
