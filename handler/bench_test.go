package handler_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// benchServer runs a server on a real port, with n connections whose peers read and drop what
// comes.
func benchServer(b *testing.B, n int, accept loop.Accept) (l *loop.Loop) {
	b.Helper()
	opened := make(chan struct{}, n)
	srv := &loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		NumLoops:    1,
		MaxOutbound: 1 << 30,
		Codec:       codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			opened <- struct{}{}
			return accept(c)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cancel()
		_ = srv.Wait()
	})
	for range n {
		c, err := net.Dial("tcp", srv.LocalAddr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		go io.Copy(io.Discard, c)
		<-opened
	}
	return srv.Loops()[0]
}

// onLoop runs f on l and waits for it.
func onLoop(l *loop.Loop, f func()) {
	done := make(chan struct{})
	_ = l.Post(func() { defer close(done); f() })
	<-done
}

var benchLine = []byte("a line of chat of a usual length, which is sixty-four bytes....")

// Broadcast compares a broadcast with a Ref.Tell to each member. The time is that of one member,
// and includes the writing to its socket.
func BenchmarkBroadcast(b *testing.B) {
	const members = 500
	perMember := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/members, "ns/member")
	}
	b.Run("Group", func(b *testing.B) {
		var g handler.Group
		l := benchServer(b, members, func(c *loop.Conn) loop.Handler {
			g.Join(c)
			return loop.HandlerFunc(echo)
		})
		b.ReportAllocs()
		for b.Loop() {
			_ = g.Broadcast(benchLine)
			onLoop(l, func() {})
		}
		perMember(b)
	})
	b.Run("Tell", func(b *testing.B) {
		refs := make(chan loop.Ref, members)
		l := benchServer(b, members, func(c *loop.Conn) loop.Handler {
			refs <- c.Ref()
			return loop.HandlerFunc(echo)
		})
		var all []loop.Ref
		for range members {
			all = append(all, <-refs)
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, r := range all {
				_ = r.Tell(func(c *loop.Conn) { _ = c.Send(benchLine) })
			}
			onLoop(l, func() {})
		}
		perMember(b)
	})
}

// BenchmarkTell measures a message to an actor, there and received, in batches of 1,000.
func BenchmarkTell(b *testing.B) {
	l := benchServer(b, 0, silent)
	sum := 0
	a, err := handler.Spawn(l, func(*handler.Actor[int]) func(int) { return func(n int) { sum += n } })
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		_ = a.Tell(1)
		if n%1000 == 0 {
			onLoop(l, func() {})
		}
	}
}

// BenchmarkMiddleware measures what each middleware adds to a message, which is the difference to
// None.
func BenchmarkMiddleware(b *testing.B) {
	for _, bench := range []struct {
		name string
		mw   []handler.Middleware
	}{
		{"None", nil},
		{"Log", []handler.Middleware{handler.Log{}}},
		{"Heartbeat", []handler.Middleware{handler.Heartbeat{Interval: 1e10}}},
		{"Limit", []handler.Middleware{handler.Limit{PerSecond: 1e9}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			made := make(chan loop.Handler, 1)
			accept := handler.Chain(silent, bench.mw...)
			l := benchServer(b, 1, func(c *loop.Conn) loop.Handler {
				h := accept(c)
				made <- h
				return h
			})
			h := <-made
			onLoop(l, func() {
				for c := range l.Conns() {
					for b.Loop() {
						_ = h.OnMessage(c, benchLine)
					}
				}
			})
		})
	}
}

// BenchmarkCalls measures what a call costs besides its request and its answer, with 64 under way.
func BenchmarkCalls(b *testing.B) {
	made := make(chan *handler.Calls[int], 1)
	l := benchServer(b, 1, func(c *loop.Conn) loop.Handler {
		made <- handler.NewCalls[int](c, handler.CallLimits{})
		return silent(c)
	})
	calls := <-made
	b.ReportAllocs()
	onLoop(l, func() {
		var ids [64]uint64
		done := func(int, error) {}
		for i := range ids {
			ids[i], _ = calls.Begin(0, done)
		}
		b.ResetTimer()
		for n := range b.N {
			calls.Answer(ids[n%64], n)
			ids[n%64], _ = calls.Begin(0, done)
		}
	})
}
