//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// A cell is one kind of load: messages as fast as their answers come, at a rate, or each by a
// connection of its own.
type cell struct {
	conns, size, depth int
	rate               int  // of all connections together, a second; 0: as fast as answers come
	anew               bool // each message has a connection of its own, conns at a time
}

var (
	echoCells = []cell{
		{conns: 100, size: 64, depth: 1}, {conns: 100, size: 64, depth: 16}, {conns: 100, size: 1 << 10, depth: 16},
		{conns: 100, size: 16 << 10, depth: 1}, {conns: 100, size: 16 << 10, depth: 16}, {conns: 100, size: 256 << 10, depth: 1},
		{conns: 1000, size: 64, depth: 1}, {conns: 1000, size: 16 << 10, depth: 1}, {conns: 1000, size: 16 << 10, depth: 16},
		{conns: 100, size: 64, rate: 500}, {conns: 100, size: 64, rate: 20_000}, {conns: 100, size: 64, rate: 60_000},
		{conns: 50, size: 64, anew: true},
	}
	tlsCells   = []cell{{conns: 50, size: 64, depth: 1}, {conns: 50, size: 16 << 10, depth: 1}, {conns: 8, size: 64, anew: true}}
	proxyCells = []cell{{conns: 100, size: 64, depth: 1}, {conns: 100, size: 16 << 10, depth: 1}, {conns: 100, size: 256 << 10, depth: 1}}
)

// named names a size.
func named(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// String is the cell's name in tables.
func (c cell) String() string {
	switch {
	case c.anew:
		return fmt.Sprintf("%d at a time, %s, a connection each", c.conns, named(c.size))
	case c.rate > 0:
		return fmt.Sprintf("%d conns, %s, %d a second", c.conns, named(c.size), c.rate)
	}
	return fmt.Sprintf("%d conns, %s, depth %d", c.conns, named(c.size), c.depth)
}

// timed reports whether the time to an answer says something of one message.
func (c cell) timed() bool { return c.size <= 64 && c.depth <= 1 }

// matches reports whether the cell's name contains one of what is listed: "depth 1" is not in
// "depth 16".
func (c cell) matches(list string) bool {
	for name := range strings.SplitSeq(list, ";") {
		name, all := strings.TrimSpace(name), c.String()+","
		if name == "" || strings.Contains(all, name+",") || strings.Contains(all, name+" ") {
			return true
		}
	}
	return false
}

// The tables of a job.
const (
	tableCPU    = "CPU"    // microseconds per message
	tableP99    = "p99"    // milliseconds
	tableMemory = "memory" // KiB for each idle connection, in user space
)

// tables are results by their names.
type tables map[string]*measure.Results

// A figure is what one measurement gave for a table.
type figure struct {
	table string
	value float64
}

// matrix measures all cells and idle connections, the servers in turns.
func (o *options) matrix(j job, servers []*server) (tables, error) {
	all := tables{}
	done, jobs := 0, o.rounds*(len(j.cells)+len(j.idle))*len(servers)
	each := func(round int, what string, measured func(s *server) ([]figure, error)) error {
		for i := range servers {
			s := servers[(i+round)%len(servers)]
			measure.Progress("round %d of %d, %s: %s (%d of %d)", round+1, o.rounds, what, s.Name, done, jobs)
			figures, err := measured(s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.Name, what, err)
			}
			for _, f := range figures {
				if all[f.table] == nil {
					all[f.table] = &measure.Results{Base: j.base}
				}
				all[f.table].Add(what, s.peer.title, f.value)
			}
			done++
		}
		return nil
	}
	for round := range o.rounds {
		for _, c := range j.cells {
			if !c.matches(o.cells) {
				continue
			}
			if err := each(round, c.String(), func(s *server) ([]figure, error) { return o.measure(s, c) }); err != nil {
				return nil, err
			}
		}
		for _, size := range j.idle {
			if what := "idle after " + named(size); o.cells == "" || strings.Contains(o.cells, "idle") {
				if err := each(round, what, func(s *server) ([]figure, error) { return o.idle(s, size) }); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no load's name contains %q", o.cells)
	}
	return all, nil
}

var errNothing = errors.New("no message came back")

// measure measures again if no message came back: the machine may have stood still all the time.
func (o *options) measure(s *server, c cell) (r []figure, err error) {
	for range 5 {
		if r, err = o.measureOnce(s, c); !errors.Is(err, errNothing) {
			break
		}
	}
	return r, err
}

// measureOnce runs one cell on one server: a third of the time to get warm, and then the time that
// counts.
func (o *options) measureOnce(s *server, c cell) ([]figure, error) {
	runtime.GC() // the last one's garbage is not this one's latency
	l := &load{cell: c, addr: s.Addr, tls: s.setup.TLS}
	if !c.anew {
		var err error
		if l.conns, err = connect(s.Addr, c.conns, l.tls); err != nil {
			return nil, err
		}
	}
	defer closeAll(l.conns)
	over := l.start()
	time.Sleep(o.window / 3)
	cpu := s.CPU()
	l.phase.Store(measuring)
	time.Sleep(o.window)
	l.phase.Store(ended)
	cpu = s.CPU() - cpu
	if err := over(); err != nil {
		return nil, err
	}
	n := float64(l.messages.Load())
	if n == 0 {
		return nil, fmt.Errorf("%w within %v", errNothing, o.window)
	}
	figures := []figure{{tableCPU, cpu.Seconds() / n * 1e6}}
	if c.timed() {
		figures = append(figures, figure{tableP99, float64(measure.Quantile(l.waits, 0.99)) / 1e6})
	}
	return figures, nil
}

// idle opens connections that echo some messages of a size and then say nothing.
func (o *options) idle(s *server, size int) ([]figure, error) {
	n := o.idlers
	if s.setup.TLS {
		n = min(n, 2000) // a handshake takes its time
	}
	if s.setup.To != "" {
		n = min(n, 2000) // there are two ends, and pipes for some
	}
	warm, err := connect(s.Addr, 50, s.setup.TLS) // what is there once is there then
	if err != nil {
		return nil, err
	}
	err = greet(warm, size)
	closeAll(warm)
	if err != nil {
		return nil, err
	}
	if err := s.collect(); err != nil {
		return nil, err
	}
	empty := s.Resident()
	conns, err := connect(s.Addr, n, s.setup.TLS)
	if err != nil {
		return nil, err
	}
	defer closeAll(conns)
	if err := greet(conns, size); err != nil {
		return nil, err
	}
	if s.setup.TLS && o.idlers > 100 { // not in a test
		time.Sleep(18 * time.Second) // loops drop what connections make again when they speak
	}
	if err := s.collect(); err != nil {
		return nil, err
	}
	return []figure{{tableMemory, float64(s.Resident()-empty) / float64(n) / 1024}}, nil
}

// greet echoes messages on each connection, one by one; large ones so often that buffers are full.
func greet(conns []net.Conn, size int) error {
	deadline, times := time.Now().Add(time.Minute), 1
	if size >= 16<<10 {
		times = 12
	}
	frame, answer := frame(size), make([]byte, header+size)
	for _, c := range conns {
		_ = c.SetDeadline(deadline)
		for range times {
			if err := exchange(c, frame, answer); err != nil {
				return err
			}
		}
		_ = c.SetDeadline(time.Time{})
	}
	return nil
}
