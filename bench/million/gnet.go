//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/RussellLuo/timingwheel"
	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// traffic echoes what talkers say, and counts answers to pings.
func (s *counts) traffic(c gnet.Conn) gnet.Action {
	for {
		head, err := c.Peek(header)
		if err != nil {
			return gnet.None
		}
		n := header + int(binary.BigEndian.Uint32(head))
		frame, err := c.Peek(n)
		if err != nil {
			return gnet.None
		}
		if n != header+pingSize {
			_, _ = c.Write(frame)
		} else {
			s.heartbeats.Add(1)
		}
		_, _ = c.Discard(n)
	}
}

// A listServer is gnet with the connections of its loop in two lists, those that were pinged and
// the others, both in order of the last message. All have the same timeouts, so the connection that
// is due next is the first of its list: a message and an eviction are O(1). Only the loop touches
// the lists. OnTick runs elsewhere, and starts Run on the loop.
type listServer struct {
	gnet.BuiltinEventEngine
	*counts
	interval, timeout time.Duration
	idle, pinged      list
	loop              atomic.Pointer[gnet.EventLoop]
}

// listTick suits timeouts of a minute: a look each 0.1 s costs nothing beside the messages.
const listTick = 100 * time.Millisecond

type listPeer struct {
	conn       gnet.Conn
	heard      time.Duration // since epoch
	prev, next *listPeer     // nil if it is in no list
}

// A list is a ring through its root.
type list struct{ root listPeer }

func (l *list) init() { l.root.prev, l.root.next = &l.root, &l.root }

// first returns nil if the list is empty.
func (l *list) first() *listPeer {
	if l.root.next == &l.root {
		return nil
	}
	return l.root.next
}

// append moves p to the end of l.
func (l *list) append(p *listPeer) {
	p.remove()
	p.prev, p.next = l.root.prev, &l.root
	p.prev.next, p.next.prev = p, p
}

func (p *listPeer) remove() {
	if p.next != nil {
		p.prev.next, p.next.prev = p.next, p.prev
		p.prev, p.next = nil, nil
	}
}

func serveList(s *counts, heartbeat time.Duration) error {
	// A list needs one interval for all: the mean of what the others have.
	h := &listServer{counts: s, interval: heartbeat * 9 / 8, timeout: heartbeat * 3 / 2}
	h.idle.init()
	h.pinged.init()
	return measure.RunGnet("tcp", h, gnet.WithNumEventLoop(1), gnet.WithTicker(true))
}

func (s *listServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if s.loop.Load() == nil {
		l := c.EventLoop()
		s.loop.Store(&l)
	}
	p := &listPeer{conn: c, heard: time.Since(epoch)}
	c.SetContext(p)
	s.idle.append(p)
	s.open.Add(1)
	return nil, gnet.None
}

func (s *listServer) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*listPeer).remove()
	s.open.Add(-1)
	return gnet.None
}

func (s *listServer) OnTraffic(c gnet.Conn) gnet.Action {
	p := c.Context().(*listPeer)
	p.heard = time.Since(epoch)
	s.idle.append(p)
	return s.traffic(c)
}

func (s *listServer) OnTick() (time.Duration, gnet.Action) {
	if l := s.loop.Load(); l != nil {
		_ = (*l).Execute(context.Background(), s)
	}
	return listTick, gnet.None
}

// Run pings and evicts what is due. A Write that fails calls OnClose.
func (s *listServer) Run(context.Context) error {
	now := time.Since(epoch)
	for p := s.idle.first(); p != nil && now-p.heard >= s.interval; p = s.idle.first() {
		s.pinged.append(p)
		_, _ = p.conn.Write(pingFrame)
	}
	for p := s.pinged.first(); p != nil && now-p.heard >= s.timeout; p = s.pinged.first() {
		p.remove()
		s.evicted(p.heard, s.timeout)
		_ = p.conn.EventLoop().Close(p.conn)
	}
	return nil
}

// A wheelServer is gnet with github.com/RussellLuo/timingwheel: a timer for each connection, which
// may each have a timeout of its own. A message only notes its time. A timer that fires before the
// peer was silent for long enough is set again for the rest.
type wheelServer struct {
	gnet.BuiltinEventEngine
	*counts
	heartbeat time.Duration
	wheel     *timingwheel.TimingWheel
}

// wheelTick suits timeouts of a minute. The wheel's lowest level lasts 5 s.
const wheelTick = 10 * time.Millisecond

// A wheelPeer belongs to its loop.
type wheelPeer struct {
	server          *wheelServer
	conn            gnet.Conn
	timer           *timingwheel.Timer
	heard, interval time.Duration
	pinged, closed  bool
}

func serveWheel(s *counts, heartbeat time.Duration) error {
	h := &wheelServer{counts: s, heartbeat: heartbeat, wheel: timingwheel.NewTimingWheel(wheelTick, 512)}
	h.wheel.Start()
	return measure.RunGnet("tcp", h, gnet.WithNumEventLoop(1))
}

func (s *wheelServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p := &wheelPeer{server: s, conn: c, heard: time.Since(epoch), interval: interval(s.heartbeat)}
	c.SetContext(p)
	p.arm(p.interval)
	s.open.Add(1)
	return nil, gnet.None
}

func (s *wheelServer) OnClose(c gnet.Conn, _ error) gnet.Action {
	p := c.Context().(*wheelPeer)
	p.closed = true
	p.timer.Stop()
	s.open.Add(-1)
	return gnet.None
}

func (s *wheelServer) OnTraffic(c gnet.Conn) gnet.Action {
	p := c.Context().(*wheelPeer)
	p.heard, p.pinged = time.Since(epoch), false
	return s.traffic(c)
}

// arm has Run called on the loop in d. The wheel rounds down to a tick: one more makes it never
// early. It fires on a goroutine of its own.
func (p *wheelPeer) arm(d time.Duration) {
	loop := p.conn.EventLoop()
	p.timer = p.server.wheel.AfterFunc(d+wheelTick, func() { _ = loop.Execute(context.Background(), p) })
}

func (p *wheelPeer) Run(context.Context) error {
	silence, timeout := time.Since(epoch)-p.heard, p.server.heartbeat*3/2
	switch {
	case p.closed:
	case p.pinged && silence >= timeout:
		p.server.evicted(p.heard, timeout)
		return p.conn.EventLoop().Close(p.conn)
	case p.pinged:
		p.arm(timeout - silence)
	case silence >= p.interval:
		p.pinged = true
		p.arm(timeout - silence)
		_, _ = p.conn.Write(pingFrame)
	default:
		p.arm(p.interval - silence)
	}
	return nil
}
