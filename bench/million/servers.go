//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

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

// runServer prints its address, and for each line of input how many connections there are, how many
// heartbeats were answered, how many peers were evicted, and how late: the 99th percentile and the
// worst. "end" ends all connections.
func runServer(name string, heartbeat time.Duration) error {
	s := &counts{}
	var addr string
	var end func()
	var err error
	switch name {
	case "loopwheel":
		addr, end, err = serveLoopwheel(s, heartbeat, loop.EngineGnet)
	case "loopwheel-epoll":
		addr, end, err = serveLoopwheel(s, heartbeat, loop.EngineEpoll)
	case "gnet-scan":
		err = serveGnet(s, heartbeat, &end)
	case "net":
		addr, end, err = serveNet(s, heartbeat)
	default:
		err = fmt.Errorf("there is no server %q", name)
	}
	if err != nil {
		return err
	}
	if addr != "" {
		fmt.Println(addr)
	}
	measure.Obey(func(line string) string {
		if line == "end" {
			end()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(s.open.Load(), " ", s.heartbeats.Load(), " ", len(s.late), " ", int64(measure.Quantile(s.late, 0.99)), " ", int64(measure.Quantile(s.late, 1)))
	})
	return nil
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

func serveLoopwheel(s *counts, heartbeat time.Duration, engine loop.Engine) (string, func(), error) {
	timeout := heartbeat * 3 / 2
	accept := func(*loop.Conn) loop.Handler {
		s.open.Add(1)
		return &peer{counts: s, heard: time.Since(epoch), timeout: timeout}
	}
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", Engine: engine, NumLoops: 1, Codec: codec.Length{Max: 1024},
		IdleTimeout: timeout, MaxConns: 2_000_000, DrainTimeout: time.Minute,
		Accept: handler.Chain(accept, handler.Heartbeat{Interval: heartbeat, Jitter: heartbeat / 4, Message: pingFrame[header:], Missed: 10}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		cancel()
		return "", nil, err
	}
	return srv.LocalAddr().String(), func() {
		cancel()
		_ = srv.Wait()
	}, nil
}

// gnetPeer is the context of a connection of gnet's. OnTick reads it on another goroutine.
type gnetPeer struct {
	conn     gnet.Conn
	interval time.Duration
	heard    atomic.Int64
	pinged   atomic.Bool
}

// gnetScan looks at all connections each second, as raw gnet has no timeouts.
type gnetScan struct {
	gnet.BuiltinEventEngine
	*counts
	heartbeat time.Duration
	booted    chan gnet.Engine
	mu        sync.Mutex
	peers     map[*gnetPeer]struct{}
}

func (s *gnetScan) OnBoot(e gnet.Engine) gnet.Action {
	s.booted <- e
	return gnet.None
}

func (s *gnetScan) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p := &gnetPeer{conn: c, interval: interval(s.heartbeat)}
	p.heard.Store(int64(time.Since(epoch)))
	c.SetContext(p)
	s.mu.Lock()
	s.peers[p] = struct{}{}
	s.mu.Unlock()
	s.open.Add(1)
	return nil, gnet.None
}

func (s *gnetScan) OnClose(c gnet.Conn, _ error) gnet.Action {
	s.mu.Lock()
	delete(s.peers, c.Context().(*gnetPeer))
	s.mu.Unlock()
	s.open.Add(-1)
	return gnet.None
}

func (s *gnetScan) OnTraffic(c gnet.Conn) gnet.Action {
	p := c.Context().(*gnetPeer)
	p.heard.Store(int64(time.Since(epoch)))
	p.pinged.Store(false)
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

func (s *gnetScan) OnTick() (time.Duration, gnet.Action) {
	now := time.Since(epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		switch silence := now - time.Duration(p.heard.Load()); {
		case silence >= s.heartbeat*3/2:
			s.evicted(time.Duration(p.heard.Load()), s.heartbeat*3/2)
			_ = p.conn.Close()
		case silence >= p.interval && p.pinged.CompareAndSwap(false, true):
			_ = p.conn.AsyncWrite(pingFrame, nil)
		}
	}
	return time.Second, gnet.None
}

func serveGnet(s *counts, heartbeat time.Duration, end *func()) error {
	h := &gnetScan{counts: s, heartbeat: heartbeat, booted: make(chan gnet.Engine, 1), peers: make(map[*gnetPeer]struct{})}
	failed := make(chan error, 1)
	go func() { failed <- measure.RunGnet("tcp", h, gnet.WithNumEventLoop(1), gnet.WithTicker(true)) }()
	select {
	case err := <-failed:
		return err
	case e := <-h.booted:
		*end = func() { _ = e.Stop(context.Background()) }
		return nil
	}
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline for each read.
func serveNet(s *counts, heartbeat time.Duration) (string, func(), error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var conns sync.Map
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Store(c, nil)
			s.open.Add(1)
			go func() {
				defer s.open.Add(-1)
				defer conns.Delete(c)
				defer c.Close()
				s.serveNet(c, heartbeat)
			}()
		}
	}()
	return ln.Addr().String(), func() {
		_ = ln.Close()
		conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		for s.open.Load() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}, nil
}

func (s *counts) serveNet(c net.Conn, heartbeat time.Duration) {
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
			} else {
				if _, err := c.Write(in[:size]); err != nil {
					return
				}
			}
			have = copy(in, in[size:have])
		}
	}
}
