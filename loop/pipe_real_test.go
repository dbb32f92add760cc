package loop_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// piped is a proxy between clients and a listener of the test.
type piped struct {
	t       *testing.T
	srv     *loop.Server
	backend *net.TCPListener
	done    chan pipeEnd
}

type pipeEnd struct {
	up, down uint64
	err      error
}

func newPiped(t *testing.T, ctx context.Context, cfg loop.PipeConfig) *piped {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &piped{t: t, backend: ln.(*net.TCPListener), done: make(chan pipeEnd, 1<<17)}
	cfg.Done = func(up, down uint64, err error) { p.done <- pipeEnd{up, down, err} }
	p.srv = &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, Accept: func(a *loop.Conn) loop.Handler {
		a.PauseRead()
		loop.Dialer{}.Dial(a.Loop(), "tcp://"+ln.Addr().String(), func(b *loop.Conn, err error) loop.Handler {
			if err != nil {
				a.CloseWithError(err)
				return nil
			}
			loop.Pipe(a, b, cfg)
			a.ResumeRead()
			return loop.HandlerFunc(echo)
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return errors.New("a message of what is piped") })
	}}
	startWith(t, ctx, p.srv)
	return p
}

// open returns both ends of a connection through the proxy.
func (p *piped) open() (client, backend *net.TCPConn) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.srv.LocalAddr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.backend.SetDeadline(time.Now().Add(patience))
	b, err := p.backend.AcceptTCP()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range []net.Conn{c, b} {
		c.SetDeadline(time.Now().Add(patience))
		p.t.Cleanup(func() { c.Close() })
	}
	return c.(*net.TCPConn), b
}

func TestPipeHalfCloses(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		p := newPiped(t, ctx, loop.PipeConfig{})
		c, b := p.open()
		c.Write([]byte("request, without an end of line"))
		c.CloseWrite()
		if got, err := io.ReadAll(b); string(got) != "request, without an end of line" || err != nil {
			t.Errorf("the backend got %q, %v", got, err)
		}
		b.Write([]byte("answer"))
		b.CloseWrite()
		if got, err := io.ReadAll(c); string(got) != "answer" || err != nil {
			t.Errorf("the client got %q, %v", got, err)
		}
		if end := receive(t, p.done, "the end"); end != (pipeEnd{31, 6, nil}) {
			t.Errorf("%+v: %v", end, end.err)
		}
	})
}

func TestPipeResets(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		p := newPiped(t, ctx, loop.PipeConfig{})
		for i := range 2 {
			var ends [2]*net.TCPConn
			ends[0], ends[1] = p.open()
			ends[0].Write([]byte("x"))
			ends[1].Read(make([]byte, 1))
			ends[i].SetLinger(0)
			ends[i].Close()
			if n, err := ends[1-i].Read(make([]byte, 1)); n != 0 || !passesOn(err) {
				t.Errorf("after a reset the other side reads %d, %v", n, err)
			}
			if end := receive(t, p.done, "the end"); end.err == nil || end.up != 1 {
				t.Errorf("%+v: %v", end, end.err)
			}
		}
	})
}

// What was on its way when one side resets comes before the reset of the other, or before an end
// where the system does not tell what a peer has.
func TestPipeResetsBehindMuch(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		const size = 4 << 20
		p := newPiped(t, ctx, loop.PipeConfig{})
		c, b := p.open()
		go func() {
			_, _ = b.Write(make([]byte, size))
			for p.srv.Stats().BytesIn < size { // a reset drops what has not been read
				time.Sleep(time.Millisecond) // between two looks
			}
			_ = b.SetLinger(0)
			_ = b.Close()
		}()
		time.Sleep(100 * time.Millisecond) // no event: some of it waits meanwhile, for who is slow to read
		if n, err := io.Copy(io.Discard, c); n != size || !passesOn(cmp.Or(err, io.EOF)) {
			t.Errorf("read %d bytes of %d, and then %v", n, size, err)
		}
		if end := receive(t, p.done, "the end"); end.err == nil || end.down != size {
			t.Errorf("%+v: %v", end, end.err)
		}
	})
}

// passesOn reports whether a read of one side of a pipe ends as it must when the other was reset.
func passesOn(err error) bool {
	if runtime.GOOS != "linux" { // which does not tell
		return err != nil
	}
	return errors.Is(err, syscall.ECONNRESET)
}

// What one side sends and the other does not read costs no memory beyond the marks and the kernel's
// buffers.
func TestPipeSlowReader(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		p := newPiped(t, ctx, loop.PipeConfig{})
		c, b := p.open()
		const total = 64 << 20
		sum := sha256.New()
		var sent sync.WaitGroup
		sent.Go(func() {
			rng := rand.NewChaCha8([32]byte{16})
			buf := make([]byte, 64<<10)
			for range total / len(buf) {
				rng.Read(buf)
				sum.Write(buf)
				if _, err := c.Write(buf); err != nil {
					t.Error(err)
				}
			}
			c.CloseWrite()
		})
		largest := 0
		got := sha256.New()
		n, buf := 0, make([]byte, 256<<10)
		for {
			k, err := b.Read(buf)
			got.Write(buf[:k])
			if n += k; err != nil {
				break
			}
			if n < 16<<20 && n%7 == 0 {
				time.Sleep(time.Millisecond) // a reader that is slow
				for _, l := range p.srv.Loops() {
					pending := make(chan int, 1)
					_ = l.Post(func() {
						most := 0
						for c := range l.Conns() {
							most = max(most, c.Pending())
						}
						pending <- most
					})
					largest = max(largest, <-pending)
				}
			}
		}
		sent.Wait()
		if n != total || !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
			t.Errorf("%d of %d bytes arrived, or other ones", n, total)
		}
		if largest > 64<<10+512<<10 { // the mark, and one read
			t.Errorf("%d bytes waited in a connection", largest)
		}
	})
}

// Random sizes, random pieces, random ends: each byte arrives, once, in order.
func TestPipeRandom(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 30
	}
	if s := os.Getenv("LOOPWHEEL_PIPES"); s != "" { // so many; 100,000 take some minutes
		n, _ = strconv.Atoi(s)
	}
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		p := newPiped(t, ctx, loop.PipeConfig{})
		var all sync.WaitGroup
		slots := make(chan struct{}, 32)
		for i := range n {
			c, b := p.open()
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				var both sync.WaitGroup
				both.Go(func() { oneWay(t, c, b, uint64(i)) })
				both.Go(func() { oneWay(t, b, c, uint64(i)+1<<32) })
				both.Wait()
				c.Close()
				b.Close()
			})
		}
		all.Wait()
		for range n {
			if end := receive(t, p.done, "the end"); end.err != nil {
				t.Errorf("%+v: %v", end, end.err)
			}
		}
		rig.HasConns(t, p.srv, 0)
	})
}

// oneWay sends a random stream from one end, and checks it at the other.
func oneWay(t *testing.T, from, to *net.TCPConn, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 16))
	data := make([]byte, rng.IntN(1<<rng.IntN(20)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	go func() {
		for rest := data; len(rest) > 0; {
			k := min(len(rest), 1+rng.IntN(1<<rng.IntN(17)))
			if _, err := from.Write(rest[:k]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[k:]
		}
		from.CloseWrite()
	}()
	got, err := io.ReadAll(to)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("stream %d: %d of %d bytes, %v", seed, len(got), len(data), err)
	}
}

// stream sends so many random bytes. At the other end they must be the same.
func stream(t *testing.T, from, to *net.TCPConn, size int) {
	t.Helper()
	sent, got := make([]byte, size), make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
	go func() { _, _ = from.Write(sent) }()
	if n, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("got %d bytes, %v; the same as were sent: %v; want %d", n, err, bytes.Equal(got[:n], sent[:n]), size)
	}
}
