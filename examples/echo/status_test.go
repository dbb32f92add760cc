package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A lockedBuffer may be written to and read by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// While nothing changes nothing is said.
func TestStatusLineOnlyIfSomethingChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go status(ctx, srv.Server, zerolog.New(&log))
		lines := func(intervals time.Duration) int {
			before := strings.Count(log.String(), "\n")
			srv.Sleep(intervals * statusInterval)
			return strings.Count(log.String(), "\n") - before
		}
		if n := lines(10); n != 0 {
			t.Errorf("%d lines, and nothing happens: %s", n, log.String())
		}
		p := srv.Open()
		p.Send("hello\n")
		if n := lines(10); n != 2 { // with a message, and without
			t.Errorf("%d lines for a connection and a message: %s", n, log.String())
		}
		p.Close()
		if n := lines(10); n != 1 {
			t.Errorf("%d lines for the end of a connection: %s", n, log.String())
		}
		cancel()
	})
}
