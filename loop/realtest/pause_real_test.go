package realtest_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// pausing takes what comes, pauses after each piece and resumes a little later. It sends back the
// sum of all when the peer has ended.
type pausing struct {
	got    int // bytes
	wrong  bool
	pauses int
	closed chan *pausing
	err    error
}

func (h *pausing) OnMessage(c *loop.Conn, msg []byte) error {
	for _, b := range msg {
		h.wrong = h.wrong || b != byte(h.got%251)
		h.got++
	}
	h.pauses++
	c.PauseRead()
	c.AfterFunc(time.Duration(h.pauses%3)*time.Millisecond, c.ResumeRead)
	return c.Send([]byte("taken")) // output goes on while input is paused
}

func (h *pausing) OnClose(_ *loop.Conn, err error) {
	h.err = err
	h.closed <- h
}

// Real sockets that are paused and resumed again and again lose nothing, mix up nothing, and see
// their ends: plain, and below TLS, where what is decrypted already waits, too.
func TestRealPauses(t *testing.T) {
	needPlain(t, "it does both")
	for name, version := range map[string]uint16{"plain": 0, "TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) { realPauses(t, version) })
	}
}

func realPauses(t *testing.T, version uint16) {
	closed := make(chan *pausing, 100)
	srv := &loop.Server{NumLoops: 2, Accept: func(*loop.Conn) loop.Handler { return &pausing{closed: closed} }}
	connect := net.Dial
	if version != 0 {
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")},
			MinVersion: version, MaxVersion: version}
		connect = func(network, addr string) (net.Conn, error) {
			return tls.Dial(network, addr, &tls.Config{InsecureSkipVerify: true})
		}
	}
	addr := start(t, srv)
	const conns, size = 6, 2 << 20
	stream := make([]byte, size)
	for i := range stream {
		stream[i] = byte(i % 251)
	}
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			c, err := connect(addr.Network(), addr.String())
			if err != nil {
				t.Error(err)
				return
			}
			sendsAll(t, c, stream)
		})
	}
	wg.Wait()
	for range conns {
		h := <-closed
		if h.got != size || h.wrong || h.err != io.EOF || h.pauses < 2 {
			t.Errorf("got %d of %d bytes in %d pieces, wrong: %v; %v", h.got, size, h.pauses, h.wrong, h.err)
		}
	}
}

// sendsAll writes all of stream, ends its direction, and reads the answers to their end.
func sendsAll(t *testing.T, c net.Conn, stream []byte) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write(stream); err != nil {
		t.Error(err)
	}
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	answers, err := io.ReadAll(c)
	if err != nil || len(answers) == 0 || len(bytes.ReplaceAll(answers, []byte("taken"), nil)) != 0 {
		t.Errorf("answers: %d bytes, %v", len(answers), err)
	}
}

// A connection that ends while its reading is paused ends at once: by Close, by the drain, by its
// peer's reset once it is resumed.
func TestEndsWhilePaused(t *testing.T) {
	needPlain(t, "it is about the socket")
	for name, c := range map[string]struct {
		end  func(c *loop.Conn, peer *net.TCPConn)
		want error
	}{
		"close":  {func(c *loop.Conn, _ *net.TCPConn) { c.Close() }, nil},
		"reason": {func(c *loop.Conn, _ *net.TCPConn) { c.CloseWithError(errOwn) }, errOwn},
		"reset": {func(c *loop.Conn, peer *net.TCPConn) {
			_ = peer.SetLinger(0)
			_ = peer.Close()
			c.AfterFunc(10*time.Millisecond, c.ResumeRead)
		}, syscall.ECONNRESET},
		"resume and close": {func(c *loop.Conn, _ *net.TCPConn) { c.ResumeRead(); c.CloseWithError(errOwn) }, errOwn},
	} {
		t.Run(name, func(t *testing.T) {
			refs, reasons := make(chan loop.Ref, 1), make(chan error, 1)
			srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
				n := 0
				return script{
					Message: func(c *loop.Conn, _ []byte) error {
						if n++; n == 1 {
							c.PauseRead()
							refs <- c.Ref()
						}
						return nil
					},
					Close: func(_ *loop.Conn, err error) { reasons <- err },
				}
			}}
			peer := dial(t, start(t, srv)).(*net.TCPConn)
			_, _ = peer.Write([]byte("x"))
			ref := <-refs
			_, _ = peer.Write(make([]byte, 100_000)) // so that the socket is paused indeed
			looksAround(ref)
			if err := ref.Tell(func(conn *loop.Conn) { c.end(conn, peer) }); err != nil {
				t.Fatal(err)
			}
			if err := <-reasons; !errors.Is(err, c.want) {
				t.Errorf("reason %v, want %v", err, c.want)
			}
		})
	}
}

// looksAround waits until the loop has looked at its sockets a few times.
func looksAround(ref loop.Ref) {
	for range 20 {
		done := make(chan struct{})
		if ref.Tell(func(*loop.Conn) { close(done) }) != nil {
			return
		}
		<-done
	}
}

// A peer that sends all it has, ends, and goes while it is paused: all of that arrives after
// ResumeRead, also when the kernel has nothing more to do with that connection.
func TestPeerGoesWhilePaused(t *testing.T) {
	needPlain(t, "it is about the socket")
	for name, answer := range map[string]func(c *loop.Conn){
		"nothing is sent":           func(*loop.Conn) {},
		"a reply that nobody takes": func(c *loop.Conn) { _ = c.Send([]byte("x")) },
		"the output was ended":      nil,
	} {
		t.Run(name, func(t *testing.T) { peerGoes(t, answer) })
	}
}

func peerGoes(t *testing.T, answer func(c *loop.Conn)) {
	const size = 20_000
	refs, reasons := make(chan loop.Ref, 1), make(chan error, 1)
	got := 0
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
		return script{
			Message: func(c *loop.Conn, m []byte) error {
				if got += len(m); got == 1 {
					if c.PauseRead(); answer == nil {
						c.CloseWrite()
					}
					refs <- c.Ref()
				} else if got < size { // a second pause, while the rest is read
					c.PauseRead()
					c.AfterFunc(time.Millisecond, c.ResumeRead)
				}
				return nil
			},
			Close: func(_ *loop.Conn, err error) { reasons <- err },
		}
	}}
	peer := dial(t, start(t, srv)).(*net.TCPConn)
	_, _ = peer.Write([]byte("x"))
	ref := <-refs
	if answer == nil {
		_, _ = io.ReadAll(peer)
	}
	_, _ = peer.Write(make([]byte, size/2))
	looksAround(ref)
	_, _ = peer.Write(make([]byte, size/2))
	_ = peer.Close()
	if answer != nil {
		_ = ref.Tell(answer)
	}
	looksAround(ref)
	_ = ref.Tell((*loop.Conn).ResumeRead)
	if err := <-reasons; got != size+1 || err != io.EOF {
		t.Errorf("got %d bytes, want %d; %v", got, size+1, err)
	}
}

// That a peer resets its connection is noticed though nothing is read from it.
func TestResetWhilePaused(t *testing.T) {
	needPlain(t, "it is about the socket")
	if runtime.GOOS != "linux" {
		t.Skip("it is noticed on Linux only; see Conn.PauseRead")
	}
	for name, send := range map[string]int{"silent": 0, "with output that waits": 16 << 20} {
		t.Run(name, func(t *testing.T) {
			refs, reasons := make(chan loop.Ref, 1), make(chan error, 1)
			srv := &loop.Server{MaxOutbound: 32 << 20, Accept: func(*loop.Conn) loop.Handler {
				return script{
					Message: func(c *loop.Conn, _ []byte) error {
						c.PauseRead()
						refs <- c.Ref()
						return c.Send(make([]byte, send))
					},
					Close: func(_ *loop.Conn, err error) { reasons <- err },
				}
			}}
			peer := dial(t, start(t, srv)).(*net.TCPConn)
			_, _ = peer.Write([]byte("x"))
			ref := <-refs
			_, _ = peer.Write([]byte("the socket is paused when this has come"))
			looksAround(ref)
			_ = peer.SetLinger(0)
			_ = peer.Close()
			if err := <-reasons; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("reason %v", err)
			}
			turnsEnd(t, srv)
			if n := srv.Stats().Conns; n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}
