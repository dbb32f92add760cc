package main

import (
	"container/heap"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// idlePeers watch over connections in different ways, or do not.
var idlePeers = []peer{
	{"loopwheel-timeout", func(s setup) error { return serveTimeout(s, s.timeout) }},
	{"loopwheel-none", func(s setup) error { return serveTimeout(s, 0) }},
	{"gnet-none", func(s setup) error { return runGnet(&gnetServer{}, s) }},
	{"gnet-scan", serveGnetScan},
	{"gnet-heap", serveGnetHeap},
	{"net-deadline", serveNet},
}

// serveTimeout differs from loopwheel without a timeout in nothing else.
func serveTimeout(s setup, timeout time.Duration) error {
	return runLoopwheel(&loop.Server{
		Codec:       codec.Length{},
		NumLoops:    s.loops,
		IdleTimeout: timeout,
		MaxConns:    15_000,
		Accept:      func(*loop.Conn) loop.Handler { return echoer{} },
	})
}

// scanServer is what gnet's users build by hand: a table of last activities behind a mutex, which
// OnTick walks through each second, as that runs on a goroutine of its own.
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
	return runGnet(&scanServer{timeout: s.timeout, last: make(map[gnet.Conn]time.Time)}, s, gnet.WithTicker(true))
}

// heapServer keeps the connections in a heap by deadline, which each message moves.
type heapServer struct {
	gnetServer
	timeout time.Duration
	mu      sync.Mutex
	heap    deadlines
}

// A deadline is a connection's place in the heap, its context.
type deadline struct {
	conn  gnet.Conn
	at    time.Time
	place int
}

type deadlines []*deadline

func (h deadlines) Len() int           { return len(h) }
func (h deadlines) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h deadlines) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *deadlines) Push(x any) {
	d := x.(*deadline)
	d.place = len(*h)
	*h = append(*h, d)
}

func (h *deadlines) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	d.place = -1
	return d
}

func (s *heapServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	d := &deadline{conn: c, at: time.Now().Add(s.timeout)}
	c.SetContext(d)
	s.mu.Lock()
	heap.Push(&s.heap, d)
	s.mu.Unlock()
	return nil, gnet.None
}

func (s *heapServer) OnTraffic(c gnet.Conn) gnet.Action {
	s.mu.Lock()
	if d := c.Context().(*deadline); d.place >= 0 {
		d.at = time.Now().Add(s.timeout)
		heap.Fix(&s.heap, d.place)
	}
	s.mu.Unlock()
	return s.gnetServer.OnTraffic(c)
}

func (s *heapServer) OnClose(c gnet.Conn, _ error) gnet.Action {
	s.mu.Lock()
	if d := c.Context().(*deadline); d.place >= 0 {
		heap.Remove(&s.heap, d.place)
	}
	s.mu.Unlock()
	return gnet.None
}

// OnTick closes what is due and comes again when the next may be, a second later at most.
func (s *heapServer) OnTick() (time.Duration, gnet.Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.heap) > 0 {
		if wait := time.Until(s.heap[0].at); wait > 0 {
			return min(wait, time.Second), gnet.None
		}
		_ = heap.Pop(&s.heap).(*deadline).conn.Close()
	}
	return time.Second, gnet.None
}

func serveGnetHeap(s setup) error {
	return runGnet(&heapServer{timeout: s.timeout}, s, gnet.WithTicker(true))
}
