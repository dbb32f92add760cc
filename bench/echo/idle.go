package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	silentEvery = 100 // one in so many falls silent
	smallSize   = 64  // bytes of a message here
)

// A watch is what it cost to watch over idle connections.
type watch struct {
	peer     string
	cpu      []float64 // microseconds per message
	lateness histogram
	evicted  int
	silent   int
}

// idling has many connections that say something once a second, and some that stop to. Each server
// has them for a whole timeout, one server after the other.
func (o *options) idling() error {
	servers, err := startServers(o.peers, setup{loops: o.procs, timeout: o.timeout})
	if err != nil {
		return err
	}
	defer stopServers(servers)
	watches := make([]watch, len(servers))
	for round := range o.rounds {
		for i := range servers {
			k := (i + round) % len(servers)
			progress("round %d of %d, %v: %s", round+1, o.rounds, o.timeout+2*time.Second, servers[k].name)
			watches[k].peer = servers[k].name
			if err := o.watch(servers[k], &watches[k]); err != nil {
				return fmt.Errorf("%s: %w", servers[k].name, err)
			}
		}
	}
	progressEnds()
	o.printWatches(watches)
	return nil
}

// watch measures again if the machine stood still, so that clients fell silent that should not.
func (o *options) watch(server *process, w *watch) (err error) {
	for range 10 {
		if err = o.watchOnce(server, w); !errors.Is(err, errStoodStill) {
			return err
		}
	}
	return err
}

var errStoodStill = errors.New("the machine stood still for so long that clients fell silent that should not, ten times")

func (o *options) watchOnce(server *process, w *watch) error {
	begun := time.Now()
	conns, err := connect(server.addr, o.idlers)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	c := &crowd{conns: conns, last: make([]time.Time, len(conns)), ended: make([]time.Time, len(conns))}
	for i := range c.last {
		c.last[i] = begun
	}
	var readers sync.WaitGroup
	for i := range conns {
		readers.Go(func() { c.read(i) })
	}
	before, err := server.ask("usage")
	if err != nil {
		return err
	}
	c.talk(o.timeout + 2*time.Second)
	for end := time.Now().Add(10 * time.Second); c.answered.Load() < c.enough() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	after, err := server.ask("usage")
	if err != nil {
		return err
	}
	silent := int64((len(conns) + silentEvery - 1) / silentEvery)
	for end := time.Now().Add(10 * time.Second); !strings.HasSuffix(server.name, "none") && c.evicted.Load() < silent && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // who watches is late if the machine stood still
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
	w.cpu = append(w.cpu, float64((after.CPU-before.CPU).Nanoseconds())/1e3/float64(c.sent))
	for i := 0; i < len(conns); i += silentEvery {
		w.silent++
		if !c.ended[i].IsZero() {
			w.evicted++
			w.lateness.add(c.ended[i].Sub(c.last[i].Add(o.timeout)))
		}
	}
	return nil
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
	frame := make([]byte, header+smallSize)
	binary.BigEndian.PutUint32(frame, smallSize)
	begun := time.Now()
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
	answer := make([]byte, header+smallSize)
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

// greet sends one message on each connection and waits for the answers, for a while.
func greet(conns []net.Conn) error {
	deadline := time.Now().Add(patience)
	frame := make([]byte, header+smallSize)
	binary.BigEndian.PutUint32(frame, smallSize)
	answer := make([]byte, len(frame))
	for _, c := range conns {
		_ = c.SetDeadline(deadline)
		if _, err := c.Write(frame); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return err
		}
		_ = c.SetDeadline(time.Time{})
	}
	return nil
}

func (o *options) printWatches(watches []watch) {
	t := table{{"server", "CPU µs per message", "first = 1", "evicted", "late: p50", "p99", "worst"}}
	first := spreadOf(watches[0].cpu).median
	for _, w := range watches {
		s, l := spreadOf(w.cpu), &w.lateness
		t = append(t, []string{
			w.peer, fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.least, s.most), fmt.Sprintf("%.3f", s.median/first),
			fmt.Sprintf("%d of %d", w.evicted, w.silent), short(l.quantile(0.5)).String(),
			short(l.quantile(0.99)).String(), short(l.quantile(1 - 1e-9)).String(),
		})
	}
	fmt.Printf("%d connections, a message of each per second, timeout %v\n\n", o.idlers, o.timeout)
	t.print(os.Stdout)
}
