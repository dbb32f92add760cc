package loop_test

import (
	"context"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
)

// BenchmarkTellFromOutside is a function that another goroutine tells to a connection, and its run: 1,000
// of them, and the wait for the last.
func BenchmarkTellFromOutside(b *testing.B) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1}
	refs := make(chan loop.Ref, 1)
	srv.Accept = func(c *loop.Conn) loop.Handler {
		refs <- c.Ref()
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer func() { stop(); _ = srv.Wait() }()
	nc, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	r := <-refs
	done := make(chan struct{})
	n := 0
	f := func(*loop.Conn) { n++ }
	b.ReportAllocs()
	for b.Loop() {
		for range 999 {
			if err := r.Tell(f); err != nil {
				b.Fatal(err)
			}
		}
		if err := r.Tell(func(*loop.Conn) { done <- struct{}{} }); err != nil {
			b.Fatal(err)
		}
		<-done
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/tell")
}
