//go:build !386 && !s390x

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

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// splicing returns how many connections are passed on without a copy.
func (p *piped) splicing() (n int) {
	for _, l := range p.srv.Loops() {
		found := make(chan int, 1)
		_ = l.Post(func() {
			k := 0
			for c := range l.Conns() {
				if loop.Splices(c) {
					k++
				}
			}
			found <- k
		})
		n += <-found
	}
	return n
}

// stream sends random bytes, at least so many and until enough is true, and then the end, if it is
// to end. At the other end they must be the same.
func stream(t *testing.T, from, to *net.TCPConn, least int, enough func() bool) (n int) {
	t.Helper()
	sent, got := sha256.New(), sha256.New()
	total := make(chan int64, 1)
	go func() {
		rng := rand.NewChaCha8([32]byte{1})
		buf := make([]byte, 1<<20)
		end := time.Now().Add(patience)
		for n = 0; n < least || !enough() && time.Now().Before(end); n += len(buf) {
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

// directionsThatSplice returns how many of n do where much comes: none but of sockets in the loop's
// own epoll instance.
func directionsThatSplice(n int) int {
	if engine.Default() != engine.Epoll {
		return 0
	}
	return n
}

// A pipe copies what is little and splices what is much, both ways, and nobody can tell.
func TestPipeSplices(t *testing.T) {
	p := newPiped(t, context.Background(), loop.PipeConfig{})
	c, b := p.open()
	var up, down int
	want := directionsThatSplice(2)
	for range 2 {
		var both sync.WaitGroup
		var most atomic.Int64 // at once: on a busy machine one may copy again before the other one splices
		all := func() bool {
			n := int64(p.splicing())
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return most.Load() == int64(want)
		}
		both.Go(func() { up += stream(t, c, b, 1<<20, all) })
		both.Go(func() { down += stream(t, b, c, 1<<20, all) })
		both.Wait()
		if n := most.Load(); n != int64(want) {
			t.Errorf("%d directions splice, want %d", n, want)
		}
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
		if n := p.splicing(); n != 0 {
			t.Errorf("%d directions splice what is little", n)
		}
	}
	c.CloseWrite()
	if rest, err := io.ReadAll(b); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
	down += stream(t, b, c, 8<<20, func() bool { return true })
	b.Close()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes more, %v", len(rest), err)
	}
	if end := receive(t, p.done, "the end"); end != (pipeEnd{uint64(up), uint64(down), nil}) {
		t.Errorf("%+v, want %d up and %d down", end, up, down)
	}
}

// Either side may break while much is under way.
func TestPipeSplicesUntilReset(t *testing.T) {
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
		waitFor(t, func() bool { return passed.Load() >= 1<<20 && p.splicing() == directionsThatSplice(1) })
		ends[i].SetLinger(0)
		ends[i].Close()
		<-sent
		other.Wait()
		if end := receive(t, p.done, "the end"); end.err == nil {
			t.Errorf("%+v", end)
		}
		waitFor(t, func() bool { return p.srv.Stats().Conns == 0 })
	}
}
