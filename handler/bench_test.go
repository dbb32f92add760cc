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
		Addr:     "tcp://127.0.0.1:0",
		NumLoops: 1,
		Limits:   loop.Limits{MaxOutbound: 1 << 30},
		Codec:    codec.Lines{},
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

// BenchmarkBroadcast measures a broadcast to one of its members, with the writing to its socket.
func BenchmarkBroadcast(b *testing.B) {
	const members = 500
	g := handler.NewGroup(handler.GroupConfig{})
	l := benchServer(b, members, func(c *loop.Conn) loop.Handler {
		g.Join(c)
		return loop.HandlerFunc(echo)
	})
	b.ReportAllocs()
	for b.Loop() {
		_ = g.Broadcast(benchLine)
		onLoop(l, func() {})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/members, "ns/member")
}

// BenchmarkCalls measures what a call costs besides its request and its answer, with 64 under way.
func BenchmarkCalls(b *testing.B) {
	made := make(chan *handler.Calls[int], 1)
	l := benchServer(b, 1, func(c *loop.Conn) loop.Handler {
		made <- handler.NewCalls[int](c, handler.CallConfig{})
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
