package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

var benchEngines = map[loop.Engine]string{loop.EngineGnet: "gnet", loop.EngineEpoll: "epoll"}

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
	for e, name := range benchEngines {
		for _, cfg := range []*tls.Config{nil, serverTLS()} {
			b.Run(fmt.Sprintf("%s/tls=%v", name, cfg != nil), func(b *testing.B) {
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

// BenchmarkMatches is a period of 200 matches of ten players on two loops. Each player sends a
// message of 64 bytes, which changes the match. In the form tick all get the state of the match 20
// times a second; in the form relay they get each message at once. The players have moved to the
// loop of their match; or they stay where they were accepted, and all goes by Tell and Post. The
// players are in another process, so that cpu-ns is what the server takes.
func BenchmarkMatches(b *testing.B) {
	for e, name := range benchEngines {
		for _, relays := range []bool{false, true} {
			for _, moved := range []bool{true, false} {
				form := map[bool]string{false: "tick", true: "relay"}[relays]
				b.Run(fmt.Sprintf("%s/%s/moved=%v", name, form, moved), func(b *testing.B) { benchMatches(b, e, relays, moved) })
			}
		}
	}
}

const (
	benchPlayers, benchEach = 2_000, 10
	benchTick, benchRelay   = 50 * time.Millisecond, 500 * time.Millisecond // a player's messages are so far apart
)

// A benchMatch belongs to its loop; players are as they are from the start.
type benchMatch struct {
	at      *loop.Loop
	moved   bool
	players []*loop.Conn
	state   [64]byte
}

func (m *benchMatch) steer(n byte) { m.state[n%64]++ }

// say sends what all players of m get.
func (m *benchMatch) say(msg []byte) {
	for _, c := range m.players {
		if m.moved {
			_ = c.Send(msg)
		} else {
			_ = c.Ref().Tell(func(c *loop.Conn) { _ = c.Send(msg) })
		}
	}
}

func (m *benchMatch) tick() {
	state := m.state // of this tick
	m.say(state[:])
}

func TestMain(m *testing.M) { testkit.MainOrTests(m, playAsPeers) }

// playAsPeers is the process of the players: its arguments are the server's address and how far
// apart their messages are. It ends with its input.
func playAsPeers() {
	period, _ := time.ParseDuration(os.Args[2])
	frame := append(binary.BigEndian.AppendUint32(nil, 64), make([]byte, 64)...)
	var peers []net.Conn
	for range benchPlayers {
		nc, err := net.Dial("tcp", os.Args[1])
		if err != nil {
			panic(err)
		}
		peers = append(peers, nc)
		go func() { _, _ = io.Copy(io.Discard, nc) }()
	}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	for next := time.Now(); ; next = next.Add(period) {
		for i, p := range peers { // spread over the period
			if i%100 == 0 {
				time.Sleep(time.Until(next.Add(period * time.Duration(i) / benchPlayers)))
			}
			_, _ = p.Write(frame)
		}
		time.Sleep(time.Until(next.Add(period)))
	}
}

func benchMatches(b *testing.B, e loop.Engine, relays, moved bool) {
	ready := make(chan *loop.Conn, benchPlayers)
	of := make(map[*loop.Conn]*benchMatch)
	var began atomic.Bool
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Engine: e, Codec: codec.Length{}, IdleTimeout: time.Minute}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		ready <- c
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if !began.Load() {
				return nil
			}
			m, n := of[c], msg[0]
			switch {
			case moved && relays:
				m.steer(n)
				m.say(msg)
			case moved:
				m.steer(n)
			case relays:
				msg = bytes.Clone(msg)
				return m.at.Post(func() { m.steer(n); m.say(msg) })
			default:
				return m.at.Post(func() { m.steer(n) })
			}
			return nil
		})
	}
	must(b, srv.Start(b.Context()))
	period := benchTick
	if relays {
		period = benchRelay
	}
	peers := testkit.Program(b.Context(), srv.LocalAddr().String(), period.String())
	leash, err := peers.StdinPipe()
	must(b, err)
	peers.Stderr = os.Stderr
	must(b, peers.Start())
	defer func() { _, _ = leash.Close(), peers.Wait() }()
	conns := make([]*loop.Conn, benchPlayers)
	for i := range conns {
		conns[i] = <-ready
	}
	var all []*benchMatch
	for i, c := range conns {
		if i%benchEach == 0 {
			all = append(all, &benchMatch{at: srv.Loops()[len(all)%2], moved: moved})
		}
		m := all[len(all)-1]
		m.players, of[c] = append(m.players, c), m
	}
	var moving sync.WaitGroup
	for _, m := range all {
		for _, c := range m.players {
			if moved {
				moving.Add(1)
				must(b, c.Ref().Tell(func(c *loop.Conn) { _ = c.MoveTo(m.at, func(*loop.Conn) { moving.Done() }) }))
			}
		}
	}
	moving.Wait()
	for _, m := range all {
		if !relays { // now that the players are the loop's
			must(b, m.at.Post(func() { m.at.Every(benchTick, m.tick) }))
		}
	}
	began.Store(true)
	time.Sleep(period) // no event: it is how long the first one takes
	used := processTime()
	b.ResetTimer()
	for b.Loop() {
		time.Sleep(period)
	}
	b.StopTimer()
	b.ReportMetric(float64(processTime()-used)/float64(b.N), "cpu-ns/op")
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
