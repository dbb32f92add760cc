package loop

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// benchSocket takes everything and does nothing, so that what is measured is the loop's own.
type benchSocket struct{ engine.Socket }

func (benchSocket) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkEchoTurn is one message and its echo: what package loop adds to what gnet and the kernel
// do. It must not allocate.
func BenchmarkEchoTurn(b *testing.B) {
	for name, idle := range map[string]time.Duration{"plain": 0, "IdleTimeout": time.Minute} {
		b.Run(name, func(b *testing.B) {
			sink := benchSink(b, idle)
			msg := []byte("\x00\x00\x00\x3c" + string(make([]byte, 60)))
			b.ReportAllocs()
			for b.Loop() {
				sink.Readable(msg)
			}
		})
	}
}

// benchSink returns what an engine sees of a connection that echoes. Nothing runs beside it: no
// engine, no watchdog, which is as if both were busy.
func benchSink(b *testing.B, idle time.Duration) engine.Sink {
	s := &Server{
		Addr:        "tcp://127.0.0.1:0",
		Codec:       codec.Length{},
		IdleTimeout: idle,
		Accept: func(*Conn) Handler {
			return HandlerFunc(func(c *Conn, msg []byte) error { return c.Send(msg) })
		},
	}
	if err := s.prepare(); err != nil {
		b.Fatal(err)
	}
	s.base = time.Now()
	s.makeWatchdog()
	s.engine = rigEngine{}
	s.limitMemory(1000)
	l := newLoop(s, 0)
	l.engine = &rigLoop{}
	l.claim()
	return arriveAt(l).land(benchSocket{})
}

// BenchmarkTell measures a Tell and the call of its function, 64 in a turn. It must not allocate.
func BenchmarkTell(b *testing.B) {
	const together = 64
	c := benchSink(b, 0).(*link).owner()
	ran, told := 0, 0
	f := func(*Conn) { ran++ }
	b.ReportAllocs()
	for b.Loop() {
		for range together {
			_ = c.Ref().Tell(f) // it does not fail, as ran shows
		}
		told += together
		c.loop.turn()
	}
	if ran != told {
		b.Errorf("%d functions ran, want %d", ran, told)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(told), "ns/tell")
}

// BenchmarkOffload is a job that does nothing, from the call to the end of its then, one at a time.
func BenchmarkOffload(b *testing.B) {
	c := benchSink(b, 0).(*link).owner()
	c.loop.server.jobs.Init(1, 1)
	c.loop.turnComing.Store(true) // nobody needs to wake the loop
	job := func(context.Context) int { return 1 }
	then := func(*Conn, int) {}
	b.ReportAllocs()
	for b.Loop() {
		if err := Offload(c, job, then); err != nil {
			b.Fatal(err)
		}
		for c.hasJobs() {
			runtime.Gosched()
			c.loop.slice = sliceOf(0, never)
			c.loop.runMail()
		}
	}
}
