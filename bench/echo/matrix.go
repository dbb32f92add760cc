package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/place"
)

// A cell is one kind of load: messages as fast as their answers come, at a rate, or each by a
// connection of its own.
type cell struct {
	conns, size, depth int
	rate               int  // of all connections together, a second; 0: as fast as answers come
	anew               bool // each message has a connection of its own, conns at a time
}

// String is the cell's name in tables.
func (c cell) String() string {
	size := fmt.Sprintf("%d B", c.size)
	if c.size >= 1<<10 {
		size = fmt.Sprintf("%d KiB", c.size>>10)
	}
	switch {
	case c.anew:
		return fmt.Sprintf("%d at a time, %s, a connection each", c.conns, size)
	case c.rate > 0:
		return fmt.Sprintf("%d conns, %s, %d a second", c.conns, size, c.rate)
	}
	return fmt.Sprintf("%d conns, %s, depth %d", c.conns, size, c.depth)
}

// A result is what one measurement of one peer gave.
type result struct {
	cell, peer string
	round      int
	rate       float64 // messages per second
	cpu        float64 // seconds per million messages
	latency    histogram
	rss        int // with the connections open
}

// matrix measures all cells, the peers in turns.
func (o *options) matrix(only string) error {
	servers, err := startServers(o.peers, setup{loops: o.procs, timeout: time.Minute})
	if err != nil {
		return err
	}
	defer stopServers(servers)
	cells := o.cells(only)
	if len(cells) == 0 {
		return fmt.Errorf("no cell's name contains %q", only)
	}
	var results []result
	begun, done, all := time.Now(), 0, o.rounds*len(cells)*len(servers)
	for round := range o.rounds {
		for _, c := range cells {
			for i := range servers {
				server := servers[(i+round)%len(servers)] // nobody is always the first
				progress("round %d of %d, %s: %s (%d of %d, %v left)", round+1, o.rounds, c, server.name, done, all, left(begun, done, all))
				var r result
				ok, err := attempt(server, c.String(), func() (err error) {
					r, err = o.measure(server, c)
					return err
				})
				if err != nil {
					return err
				}
				if ok {
					r.round = round
					results = append(results, r)
				}
				done++
			}
		}
	}
	var idle []idleCost
	if o.idlers > 0 {
		if idle, err = o.idleCosts(servers); err != nil {
			return err
		}
	}
	progressEnds()
	return o.report(results, idle)
}

// left estimates what is left of all that takes as long as what is done.
func left(begun time.Time, done, all int) time.Duration {
	if done == 0 {
		return 0
	}
	return (time.Since(begun) / time.Duration(done) * time.Duration(all-done)).Round(time.Second)
}

func (o *options) cells(only string) (cells []cell) {
	for _, c := range o.more {
		if c.matches(only) {
			cells = append(cells, c)
		}
	}
	for _, conns := range o.conns {
		for _, size := range o.sizes {
			for _, depth := range o.depths {
				if c := (cell{conns: conns, size: size, depth: depth}); c.matches(only) {
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

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

// attempt has what is measured tried three times if another's server fails, with a new process each
// time, and then left out: ok is false. Ours may not fail.
func attempt(server *process, what string, measure func() error) (ok bool, err error) {
	for range 3 {
		err := measure()
		if err == nil {
			return true, nil
		}
		if server.isOurs() {
			return false, fmt.Errorf("%s, %s: %w", server.name, what, err)
		}
		fmt.Fprintf(os.Stderr, "\n%s, %s: %v\n", server.name, what, err)
		if err := server.again(); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(os.Stderr, "%s, %s: left out\n", server.name, what)
	return false, nil
}

// measure measures again if no message came back: the machine may have stood still all the time.
func (o *options) measure(server *process, c cell) (r result, err error) {
	for range 5 {
		if r, err = o.measureOnce(server, c); !errors.Is(err, errNothing) {
			break
		}
	}
	return r, err
}

var errNothing = errors.New("no message came back")

// measureOnce runs one cell on one server: a third of the time to get warm, and then the time that
// counts.
func (o *options) measureOnce(server *process, c cell) (r result, err error) {
	runtime.GC() // the last one's garbage is not this one's latency
	free, err := place.Bind(o.place, server.cmd.Process.Pid, os.Getpid())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, free()) }()
	var conns []net.Conn
	if !c.anew {
		if conns, err = connect(server.addr, c.conns); err != nil {
			return r, err
		}
	}
	defer closeAll(conns)
	l := &load{addr: server.addr, cell: c, conns: conns}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- l.run(ctx) }()
	time.Sleep(o.window / 3)
	before, err := server.ask("usage")
	if err != nil {
		return r, err
	}
	begun := time.Now()
	l.phase.Store(measuring)
	time.Sleep(o.window)
	l.phase.Store(over)
	took := time.Since(begun)
	after, err := server.ask("usage")
	if err != nil {
		return r, err
	}
	cancel()
	if err := <-done; err != nil {
		return r, err
	}
	n := float64(l.messages.Load())
	if n == 0 {
		return r, fmt.Errorf("%w within %v", errNothing, took)
	}
	return result{
		cell: c.String(), peer: server.name, latency: l.latency, rss: after.RSS,
		rate: n / took.Seconds(), cpu: (after.CPU - before.CPU).Seconds() / n * 1e6,
	}, nil
}

// An idleCost is what connections cost that say nothing.
type idleCost struct {
	peer   string
	memory float64 // bytes per connection, user space
	cpu    float64 // percent of a core, for all of them
}

// idleCosts opens many connections that say one message and then nothing.
func (o *options) idleCosts(servers []*process) (costs []idleCost, err error) {
	for _, server := range servers {
		progress("%d idle connections: %s", o.idlers, server.name)
		var cost idleCost
		ok, err := attempt(server, "idle connections", func() (err error) {
			cost, err = o.idleCost(server)
			return err
		})
		if err != nil {
			return nil, err
		}
		if ok {
			costs = append(costs, cost)
		}
	}
	return costs, nil
}

func (o *options) idleCost(server *process) (cost idleCost, err error) {
	empty, err := server.ask("gc")
	if err != nil {
		return cost, err
	}
	conns, err := connect(server.addr, o.idlers)
	if err != nil {
		return cost, err
	}
	defer closeAll(conns)
	if err := greet(conns); err != nil {
		return cost, err
	}
	before, err := server.ask("gc")
	if err != nil {
		return cost, err
	}
	time.Sleep(o.rest)
	after, err := server.ask("usage")
	return idleCost{
		peer:   server.name,
		memory: float64(before.RSS-empty.RSS) / float64(o.idlers),
		cpu:    (after.CPU - before.CPU).Seconds() / o.rest.Seconds() * 100,
	}, err
}
