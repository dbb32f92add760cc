package tlsconn

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// shortWire is a client's net.Conn that vanishes when so many bytes of what it writes are through.
type shortWire struct {
	*wire
	left int
	gone func()
}

func (w *shortWire) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.sock.feed(p[:n], 1<<20)
	if w.left -= n; n < len(p) {
		w.gone()
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// A peer may go at each byte of a handshake, by an end or by a reset: that is a failure with a
// reason, and nothing is left of it. In the middle of what comes afterwards it is the connection's
// end.
func TestPeerGoesAnywhere(t *testing.T) {
	hello := len(clientHello(t))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, reason := range []error{io.EOF, errors.New("connection reset by peer")} {
			for _, n := range []int{0, 1, 4, 5, 9, hello / 2, hello - 1, hello, hello + 1, hello + 5, hello + 6, hello + 12,
				hello + 40, hello + 63, hello + 64, hello + 70, hello + 80, hello + 100, hello + 150, hello + 200} {
				goAfter(t, version, n, reason)
			}
		}
	}
}

func goAfter(t *testing.T, version uint16, n int, reason error) {
	t.Helper()
	s := newRig(t, nil).serve(serverConfig())
	cfg := clientConfig()
	cfg.MinVersion, cfg.MaxVersion = version, version
	w := &shortWire{wire: &wire{sock: s.sock}, left: n, gone: func() { s.sock.hangUp(reason) }}
	client := tls.Client(w, cfg)
	err := client.Handshake()
	for err == nil { // until it has gone
		_, err = client.Write(pattern(50))
	}
	if err := s.end(); err == nil || err == io.EOF {
		t.Errorf("%s, gone after %d bytes: ended with %v", tls.VersionName(version), n, err)
	}
	s.rig.do(func() {
		if l := s.rig.shared; l.Pending != 0 || l.waiting.Len() != 0 {
			t.Errorf("%s, gone after %d bytes: something is left of it", tls.VersionName(version), n)
		}
	})
}

// A handshake that is given up before a worker has got to it leaves a coroutine that others can
// use.
func TestGivenUpBeforeItBegins(t *testing.T) {
	r := newRig(t, func(cfg *SharedConfig) { cfg.Workers = NewWorkers(1, 10) })
	for range 3 {
		busy, release := make(chan struct{}), make(chan struct{})
		slow := serverConfig()
		slow.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			close(busy)
			<-release
			return nil, errors.New("enough")
		}
		slow.Certificates = nil
		first := r.serve(slow)
		first.sock.feed(clientHello(t), 1<<20)
		<-busy
		second := r.serve(serverConfig())
		second.sock.feed(clientHello(t), 1<<20)
		r.do(func() { second.conn.Abort(errors.New("given up"), false) })
		if err := second.end(); err == nil || !strings.Contains(err.Error(), "given up") {
			t.Fatalf("failed with %v", err)
		}
		close(release)
		_ = first.end()
		for range 4 {
			third := r.serve(serverConfig())
			c, _ := third.dial(clientConfig(), 1<<20)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Hooks that do not heed their context hold up the others only until it is known that they do not,
// unless there are too many of them.
func TestStuckHooks(t *testing.T) {
	r := newRig(t, func(cfg *SharedConfig) {
		cfg.Workers = NewWorkers(1, 2)
		cfg.Workers.patience = 2 * time.Millisecond
	})
	release := make(chan struct{})
	var inHook atomic.Int32
	hanging := serverConfig()
	hanging.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		inHook.Add(1)
		<-release
		return nil, errors.New("enough")
	}
	hanging.Certificates = nil
	hello := clientHello(t)
	for i := range 3 {
		s := r.serve(hanging)
		s.sock.feed(hello, 1<<20)
		testkit.Eventually(t, "the hook is called", func() bool { return int(inHook.Load()) == i+1 })
		r.do(func() { s.conn.Abort(errors.New("too late"), false) })
		_ = s.end()
	}
	w := r.shared.cfg.Workers
	if len(w.computing) != 1 || len(w.slow) != 2 {
		t.Errorf("%d compute and %d are slow, want 1 and 2", len(w.computing), len(w.slow))
	}
	close(release)
	last := r.serve(serverConfig())
	c, _ := last.dial(clientConfig(), 1<<20)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	w.settled(t)
}

func TestHugeHelloIsAnswered(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	s.sock.feed([]byte(hugeHello("\x01\xff\xff")), 1<<20)
	_ = s.end()
	c := tls.Client(&wire{sock: s.sock, held: new([]byte)}, clientConfig())
	if err := c.Handshake(); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("the client got %v, want the alert", err)
	}
}

// An end within a record is no orderly one, either.
func TestEndWithinARecord(t *testing.T) {
	s, _, k := connectRaw(t, serverConfig())
	whole := k.record(typeApplication, []byte("x"))
	s.sock.feed(append(whole, k.record(typeApplication, pattern(100))[:50]...), 1<<20)
	s.sock.hangUp(io.EOF)
	if err := s.end(); err != io.ErrUnexpectedEOF {
		t.Errorf("ended with %v, want io.ErrUnexpectedEOF", err)
	}
}

// A ClientHello is cut into records that have a size of ours, and says what it said.
func TestSplitHello(t *testing.T) {
	for _, size := range []int{4, 100, firstPart - 1, firstPart, firstPart + 1, firstPart + laterPart, firstPart + laterPart + 1, 9000} {
		for _, behind := range []string{"", "more"} {
			message := pattern(size)
			b := append([]byte{typeHandshake, 3, 1, byte(size >> 8), byte(size)}, message...)
			c := &Conn{shared: newRig(t, nil).shared}
			c.hold(append(b, behind...))
			c.splitHello()
			rest := c.in
			var got []byte
			for len(got) < size {
				n := recordSize(rest)
				if n == 0 || n > readBuffer || rest[0] != typeHandshake || rest[2] != 1 {
					t.Fatalf("%d bytes: no record of ours: %x", size, rest[:min(5, len(rest))])
				}
				got = append(got, rest[headerSize:n]...)
				rest = rest[n:]
			}
			if !bytes.Equal(got, message) || string(rest) != behind {
				t.Errorf("%d bytes and %q: %d bytes and %q", size, behind, len(got), rest)
			}
			c.release(&c.in)
		}
	}
}

// Many names make a large ClientHello. It goes through, in pieces as well.
func TestLargeHello(t *testing.T) {
	cfg := clientConfig()
	for i := range 150 {
		cfg.NextProtos = append(cfg.NextProtos, strings.Repeat("p", 50)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	server := serverConfig()
	server.NextProtos = cfg.NextProtos[149:]
	for _, cut := range []int{7, 1000, 1 << 20} {
		s := newRig(t, nil).serve(server)
		c, _ := s.dial(cfg, cut)
		if err := c.Handshake(); err != nil || c.ConnectionState().NegotiatedProtocol != server.NextProtos[0] {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// A loop that is wired to its thread does handshakes, is given some up, and ends: the runtime would
// end the process.
func TestLockedLoop(t *testing.T) {
	for _, early := range []bool{true, false} {
		versions(t, func(t *testing.T, cfg *tls.Config) {
			r := newRig(t, nil)
			if early {
				r.do(runtime.LockOSThread)
			}
			for i := range 20 {
				s := r.serve(cfg)
				s.answer = echo
				client, _ := s.dial(clientConfig(), 1<<20)
				if i%4 == 3 { // its ClientHello comes, and no more
					s.sock.feed(clientHello(t), 1<<20)
					r.do(func() { s.conn.Abort(net.ErrClosed, false) })
					continue
				}
				if _, err := client.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if i == 4 { // early or late, and then not any more
					r.do(runtime.LockOSThread)
				} else if i == 16 {
					r.do(func() { runtime.UnlockOSThread(); runtime.UnlockOSThread() })
				}
			}
		})
	}
}

// A hook, or a key, that wires its goroutine to its thread and leaves it at that.
func TestHooksThatLock(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		pair := certificate()
		own := cfg.Clone()
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { runtime.LockOSThread(); return own, nil }
		key := serverConfig()
		key.MaxVersion = cfg.MaxVersion
		key.Certificates = []tls.Certificate{{Certificate: pair.Certificate, PrivateKey: lockingKey{pair.PrivateKey.(crypto.Signer)}}}
		verify := serverConfig()
		verify.MaxVersion = cfg.MaxVersion
		verify.VerifyConnection = func(tls.ConnectionState) error { runtime.LockOSThread(); runtime.LockOSThread(); return nil }
		for _, c := range []*tls.Config{cfg, key, verify} {
			r := newRig(t, nil)
			for range 3 {
				s := r.serve(c)
				s.answer = echo
				client, _ := s.dial(clientConfig(), 1<<20)
				if _, err := client.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

type lockingKey struct{ crypto.Signer }

func (k lockingKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	runtime.LockOSThread()
	return k.Signer.Sign(r, digest, opts)
}
