package loop_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// processTime returns the CPU time of this process.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchServer returns a server with clients, and what they have sent it is not read.
func benchServer(b *testing.B, srv *loop.Server, clients int) (conns []*loop.Conn, peers []net.Conn) {
	b.Helper()
	ready := make(chan *loop.Conn, clients)
	accept := srv.Accept
	srv.Accept = func(c *loop.Conn) loop.Handler { ready <- c; return accept(c) }
	srv.Addr, srv.NumLoops = "tcp://127.0.0.1:0", 2
	ctx, stop := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stop(); _ = srv.Wait() })
	for range clients {
		nc, err := net.Dial("tcp", srv.LocalAddr().String())
		if err == nil && srv.TLS != nil {
			t := tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
			nc, err = t, t.Handshake()
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = nc.Close() })
		conns, peers = append(conns, <-ready), append(peers, nc)
	}
	return conns, peers
}

// BenchmarkMoveTo is a move of one of 200 connections, which move to and fro between two loops.
func BenchmarkMoveTo(b *testing.B) {
	for _, e := range []loop.Engine{loop.EngineGnet, loop.EngineEpoll} {
		for _, cfg := range []*tls.Config{nil, serverTLS()} {
			b.Run(fmt.Sprintf("%v/tls=%v", e, cfg != nil), func(b *testing.B) {
				srv := &loop.Server{Engine: e, TLS: cfg, IdleTimeout: time.Minute, Accept: func(*loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
				}}
				conns, _ := benchServer(b, srv, 200)
				var left, running atomic.Int64
				left.Store(int64(b.N))
				running.Store(int64(len(conns)))
				done := make(chan struct{})
				var move func(c *loop.Conn)
				move = func(c *loop.Conn) {
					if left.Add(-1) >= 0 {
						_ = c.MoveTo(srv.Loops()[1-c.Loop().Index()], move)
					} else if running.Add(-1) == 0 {
						close(done)
					}
				}
				used := processTime()
				b.ResetTimer()
				for _, c := range conns {
					_ = c.Ref().Tell(move)
				}
				<-done
				b.StopTimer()
				b.ReportMetric(float64(processTime()-used)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkMatches is a tick of 200 matches of ten players on two loops: each player sends a message
// of 64 bytes, which changes the match, and gets the state of the match. The players have moved to
// the loop of their match; or they stay where they were accepted, and all goes by Tell and Post. The
// metric is the loops' own time, as clients are in the same process.
func BenchmarkMatches(b *testing.B) {
	for _, e := range []loop.Engine{loop.EngineGnet, loop.EngineEpoll} {
		for _, moved := range []bool{true, false} {
			b.Run(fmt.Sprintf("%v/moved=%v", e, moved), func(b *testing.B) { benchMatches(b, e, moved) })
		}
	}
}

// A benchMatch belongs to its loop.
type benchMatch struct {
	at      *loop.Loop
	players []*loop.Conn
	state   [64]byte
}

func (m *benchMatch) steer(n byte) { m.state[n%64]++ }

func benchMatches(b *testing.B, e loop.Engine, moved bool) {
	const players, each, tick = 2_000, 10, 50 * time.Millisecond
	of := make(map[*loop.Conn]*benchMatch)
	srv := &loop.Server{Engine: e, Codec: codec.Length{}, IdleTimeout: time.Minute, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			m, n := of[c], msg[0]
			if moved {
				m.steer(n)
				return nil
			}
			return m.at.Post(func() { m.steer(n) })
		})
	}}
	conns, peers := benchServer(b, srv, players)
	for i, c := range conns {
		if i%each == 0 {
			of[c] = &benchMatch{at: srv.Loops()[i/each%2]}
		} else {
			of[c] = of[conns[i/each*each]]
		}
		of[c].players = append(of[c].players, c)
	}
	var moving sync.WaitGroup
	if moved {
		moving.Add(players)
		for c, m := range of {
			_ = c.Ref().Tell(func(c *loop.Conn) { _ = c.MoveTo(m.at, func(*loop.Conn) { moving.Done() }) })
		}
	}
	moving.Wait()
	for i := 0; i < players; i += each {
		m := of[conns[i]]
		_ = m.at.Post(func() {
			m.at.Every(tick, func() {
				state := m.state // of this tick
				for _, c := range m.players {
					if moved {
						_ = c.Send(state[:])
					} else {
						_ = c.Ref().Tell(func(c *loop.Conn) { _ = c.Send(state[:]) })
					}
				}
			})
		})
	}
	for _, p := range peers {
		go func() { _, _ = io.Copy(io.Discard, p) }()
	}
	busy := func() time.Duration { return srv.Stats().Busy }
	frame := append(binary.BigEndian.AppendUint32(nil, 64), make([]byte, 64)...)
	used, loops := processTime(), busy()
	b.ResetTimer()
	for next := time.Now(); b.Loop(); next = next.Add(tick) {
		for i, p := range peers { // spread over the tick
			if i%100 == 0 {
				time.Sleep(time.Until(next.Add(tick * time.Duration(i) / players)))
			}
			if _, err := p.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(time.Until(next.Add(tick)))
	}
	b.StopTimer()
	b.ReportMetric(float64(busy()-loops)/float64(b.N), "loops-ns/op")
	b.ReportMetric(float64(processTime()-used)/float64(b.N), "cpu-ns/op")
}
