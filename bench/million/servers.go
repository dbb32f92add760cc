//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A server prints its address, and serves until it fails.
type server struct {
	name  string
	serve func(s *counts, heartbeat time.Duration) error
}

// servers are in the order of the table and the chart.
var servers = []server{
	{"loopwheel", func(s *counts, h time.Duration) error { return serveLoopwheel(s, h, loop.EngineGnet) }},
	{"loopwheel-epoll", func(s *counts, h time.Duration) error { return serveLoopwheel(s, h, loop.EngineEpoll) }},
	{"gnet-list", serveList},
	{"gnet-timingwheel", serveWheel},
	{"net", serveNet},
}

// order returns the place of a server among all, -1 if there is none of that name.
func order(name string) int {
	return slices.IndexFunc(servers, func(s server) bool { return s.name == name })
}

// counts are what all servers tell of themselves.
type counts struct {
	open       atomic.Int64
	heartbeats atomic.Int64
	mu         sync.Mutex
	late       []time.Duration // of evictions
}

// interval is the silence after which one connection is pinged.
func interval(heartbeat time.Duration) time.Duration { return heartbeat + rand.N(heartbeat/4) }

// evicted notes an eviction of a peer that was heard last at a time since epoch.
func (s *counts) evicted(heard, timeout time.Duration) {
	s.mu.Lock()
	s.late = append(s.late, time.Since(epoch)-heard-timeout)
	s.mu.Unlock()
}

// runServer answers each line of input by how many connections there are, how many heartbeats were
// answered, how many peers were evicted, and how late: the 99th percentile.
func runServer(name string, heartbeat time.Duration) error {
	if order(name) < 0 {
		return fmt.Errorf("there is no server %q", name)
	}
	s := &counts{}
	go measure.Obey(func(string) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(s.open.Load(), s.heartbeats.Load(), len(s.late), int64(measure.Quantile(s.late, 0.99)))
	})
	return servers[order(name)].serve(s, heartbeat)
}

// peer is the handler of loopwheel's server.
type peer struct {
	*counts
	heard   time.Duration
	timeout time.Duration
}

func (p *peer) OnMessage(c *loop.Conn, msg []byte) error {
	p.heard = time.Since(epoch)
	if len(msg) == pingSize {
		p.heartbeats.Add(1)
		return nil
	}
	return c.Send(msg)
}

func (p *peer) OnClose(_ *loop.Conn, err error) {
	p.open.Add(-1)
	if err == loop.ErrIdle {
		p.evicted(p.heard, p.timeout)
	}
}

func serveLoopwheel(s *counts, heartbeat time.Duration, engine loop.Engine) error {
	timeout := heartbeat * 3 / 2
	accept := func(*loop.Conn) loop.Handler {
		s.open.Add(1)
		return &peer{counts: s, heard: time.Since(epoch), timeout: timeout}
	}
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", Engine: engine, NumLoops: 1, Codec: codec.Length{Max: 1024},
		IdleTimeout: timeout, Limits: loop.Limits{MaxConns: 2_000_000},
		Accept: handler.Chain(accept, handler.Heartbeat{Interval: heartbeat, Jitter: heartbeat / 4, Message: pingFrame[header:], Missed: 10}),
	}
	return measure.Serve(srv)
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline for each read.
func serveNet(s *counts, heartbeat time.Duration) error {
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		s.open.Add(1)
		go func() {
			defer s.open.Add(-1)
			defer c.Close()
			s.serveConn(c, heartbeat)
		}()
	}
}

func (s *counts) serveConn(c net.Conn, heartbeat time.Duration) {
	in := make([]byte, header+talkSize)
	heard, pinged, interval := time.Since(epoch), false, interval(heartbeat)
	for have := 0; ; {
		limit := heard + interval
		if pinged {
			limit = heard + heartbeat*3/2
		}
		_ = c.SetReadDeadline(epoch.Add(limit))
		n, err := c.Read(in[have:])
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			if pinged {
				s.evicted(heard, heartbeat*3/2)
				return
			}
			pinged = true
			_, _ = c.Write(pingFrame)
			continue
		}
		if err != nil {
			return
		}
		heard, pinged = time.Since(epoch), false
		for have += n; have >= header; {
			size := header + int(binary.BigEndian.Uint32(in))
			if size > len(in) {
				return
			}
			if have < size {
				break
			}
			if size == header+pingSize {
				s.heartbeats.Add(1)
			} else if _, err := c.Write(in[:size]); err != nil {
				return
			}
			have = copy(in, in[size:have])
		}
	}
}
