package loop_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// stream sends random bytes, at least so many. At the other end they must be the same.
func stream(t *testing.T, from, to *net.TCPConn, least int) (n int) {
	t.Helper()
	sent, got := sha256.New(), sha256.New()
	total := make(chan int64, 1)
	go func() {
		rng := rand.NewChaCha8([32]byte{1})
		buf := make([]byte, 1<<20)
		for n = 0; n < least; n += len(buf) {
			rng.Read(buf)
			sent.Write(buf)
			if _, err := from.Write(buf); err != nil {
				t.Error(err)
				break
			}
		}
		total <- int64(n)
	}()
	var read int64
	buf := make([]byte, 1<<20)
	for all := int64(-1); read != all; {
		select {
		case all = <-total:
			continue
		default:
		}
		_ = to.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		k, err := to.Read(buf)
		got.Write(buf[:k])
		if read += int64(k); err != nil && !err.(net.Error).Timeout() {
			t.Fatal(err)
		}
	}
	_ = to.SetReadDeadline(time.Now().Add(30 * time.Second))
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("other bytes arrived than were sent")
	}
	return int(read)
}

// A pipe passes on what is much, and what is little, both ways, and nobody can tell.
func TestPipePassesMuchOn(t *testing.T) {
	p := newPiped(t, context.Background(), loop.PipeConfig{})
	c, b := p.open()
	var up, down int
	for range 2 {
		var both sync.WaitGroup
		both.Go(func() { up += stream(t, c, b, 8<<20) })
		both.Go(func() { down += stream(t, b, c, 8<<20) })
		both.Wait()
		for i := range 50 { // little, a message and its answer at a time
			msg := []byte{byte(i)}
			for _, way := range [][2]*net.TCPConn{{c, b}, {b, c}} {
				way[0].Write(msg)
				if got, err := io.ReadAll(io.LimitReader(way[1], 1)); !bytes.Equal(got, msg) || err != nil {
					t.Fatalf("got %d, %v, want %d", got, err, i)
				}
			}
		}
		up, down = up+50, down+50
	}
	c.CloseWrite()
	if rest, err := io.ReadAll(b); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
	down += stream(t, b, c, 8<<20)
	b.Close()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
	if end := receive(t, p.done, "the end"); end != (pipeEnd{uint64(up), uint64(down), nil}) {
		t.Errorf("%+v, want %d up and %d down", end, up, down)
	}
}

// Either side may break while much is under way.
func TestPipePassesMuchOnUntilReset(t *testing.T) {
	for i := range 2 {
		p := newPiped(t, context.Background(), loop.PipeConfig{})
		var ends [2]*net.TCPConn
		ends[0], ends[1] = p.open()
		var other sync.WaitGroup
		var passed atomic.Int64 // a reset before there is a pipe would be another test
		other.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := ends[1].Read(buf)
				if passed.Add(int64(n)); err != nil {
					return
				}
			}
		})
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for buf := make([]byte, 1<<20); ; {
				if _, err := ends[0].Write(buf); err != nil {
					return
				}
			}
		}()
		testkit.Eventually(t, "a MiB has passed", func() bool { return passed.Load() >= 1<<20 })
		ends[i].SetLinger(0)
		ends[i].Close()
		<-sent
		other.Wait()
		if end := receive(t, p.done, "the end"); end.err == nil {
			t.Errorf("%+v", end)
		}
		rig.HasConns(t, p.srv, 0)
	}
}
