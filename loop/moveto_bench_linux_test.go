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

// BenchmarkMatches is a message of a player, which the other nine of the match get: of 2,000 players
// on two loops, who have moved to the loop of their match, or are told by Tells.
func BenchmarkMatches(b *testing.B) {
	const players, each = 2_000, 10
	for _, e := range []loop.Engine{loop.EngineGnet, loop.EngineEpoll} {
		for _, moved := range []bool{true, false} {
			b.Run(fmt.Sprintf("%v/moved=%v", e, moved), func(b *testing.B) {
				var mu sync.Mutex
				var all []*loop.Conn
				place := make(map[*loop.Conn]int)
				srv := &loop.Server{Engine: e, Codec: codec.Length{}, IdleTimeout: time.Minute, Limits: loop.Limits{MaxOutbound: 64 << 20}}
				srv.Accept = func(c *loop.Conn) loop.Handler {
					mu.Lock()
					place[c] = len(all)
					i := len(all)
					all = append(all, c)
					mu.Unlock()
					first := i / each * each
					return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
						if moved {
							for _, other := range all[first : first+each] {
								if other != c {
									_ = other.Send(msg)
								}
							}
							return nil
						}
						msg = append([]byte(nil), msg...)
						for _, other := range all[first : first+each] {
							if other != c {
								_ = other.Ref().Tell(func(c *loop.Conn) { _ = c.Send(msg) })
							}
						}
						return nil
					})
				}
				conns, peers := benchServer(b, srv, players)
				var moving sync.WaitGroup
				for _, c := range conns {
					to := srv.Loops()[place[c]/each%2]
					if !moved { // as accepting spreads them
						to = srv.Loops()[place[c]%2]
					}
					moving.Add(1)
					_ = c.Ref().Tell(func(c *loop.Conn) { _ = c.MoveTo(to, func(*loop.Conn) { moving.Done() }) })
				}
				moving.Wait()
				var got atomic.Int64
				rest := make(chan struct{}, 1)
				want := new(atomic.Int64)
				for _, p := range peers {
					go func() {
						buf := make([]byte, 64<<10)
						for {
							n, err := p.Read(buf)
							if err != nil {
								return
							}
							if got.Add(int64(n)) == want.Load() {
								rest <- struct{}{}
							}
						}
					}()
				}
				frame := append(binary.BigEndian.AppendUint32(nil, 64), make([]byte, 64)...)
				used := processTime()
				b.ResetTimer()
				for n := 0; n < b.N; n += players {
					want.Store(got.Load() + players*(each-1)*int64(len(frame)))
					for _, p := range peers {
						if _, err := p.Write(frame); err != nil && err != io.EOF {
							b.Fatal(err)
						}
					}
					<-rest
				}
				b.StopTimer()
				rounds := (b.N + players - 1) / players
				b.ReportMetric(float64(processTime()-used)/float64(rounds*players), "cpu-ns/message")
			})
		}
	}
}
