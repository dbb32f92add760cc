package tlsconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func echo(s *server, p []byte) { s.send(p) }

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// versions runs f for both versions of the protocol.
func versions(t *testing.T, f func(t *testing.T, cfg *tls.Config)) {
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(v), func(t *testing.T) {
			cfg := serverConfig()
			cfg.MinVersion, cfg.MaxVersion = v, v
			f(t, cfg)
		})
	}
}

func TestEchoInPieces(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		for _, cut := range []int{1, 2, 5, 7, 100, 1 << 20} {
			s := newRig(t, nil).serve(cfg)
			s.answer = echo
			client, _ := s.dial(clientConfig(), cut)
			for _, n := range []int{1, 64, 16384, 16385, 50_000} {
				if cut < 7 && n > 16385 {
					continue
				}
				want := pattern(n)
				if _, err := client.Write(want); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, n)
				if _, err := io.ReadFull(client, got); err != nil {
					t.Fatalf("cut %d, %d bytes: %v", cut, n, err)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("cut %d, %d bytes: not what was sent", cut, n)
				}
			}
			if err := client.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := s.end(); err != io.EOF {
				t.Errorf("ended with %v, want io.EOF", err)
			}
		}
	})
}

func TestOneWriteForWhatIsSentAtOnce(t *testing.T) {
	s := newRig(t, nil).serve(serverConfig())
	s.answer = echo
	client, w := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	fetch := w.hold()
	for range 10 {
		_, _ = client.Write(pattern(64))
	}
	before := s.sock.writes
	s.sock.feed(fetch(), 1<<20)
	if s.reads != 1 || s.sock.writes-before != 1 {
		t.Errorf("10 messages of one packet: %d pieces, %d writes; want 1 and 1", s.reads, s.sock.writes-before)
	}
}

// However long a message is, it leaves in one write: the first ones in small records, as crypto/tls
// makes them at first, and all the others in full ones.
func TestOneWriteForAMessage(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		s := newRig(t, nil).serve(cfg)
		client, _ := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		sizes := []int{1, 64, 1200, 5000, 16383, 16384, 16385, 16388, 33_000, 65_536}
		for range 3 {
			for _, n := range sizes {
				want := pattern(n)
				before, writes := 0, 0
				s.rig.do(func() {
					before = s.sock.writes
					s.send(want)
					writes = s.sock.writes - before
				})
				if writes != 1 {
					t.Errorf("%d bytes: %d writes", n, writes)
				}
				got := make([]byte, n)
				if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes: not what was sent, or %v", n, err)
				}
			}
		}
	})
}

func TestDataBehindFinished(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		s := newRig(t, nil).serve(cfg)
		s.answer = echo
		client, w := s.dial(clientConfig(), 1<<20)
		if cfg.MaxVersion == tls.VersionTLS12 { // there the server has the last word
			if err := client.Handshake(); err != nil {
				t.Fatal(err)
			}
			return
		}
		held := &lateWire{wire: w}
		client = tls.Client(held, clientConfig())
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		want := pattern(40_000)
		if _, err := client.Write(want); err != nil {
			t.Fatal(err)
		}
		s.sock.feed(held.late, 1<<20)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
			t.Fatal("what came with Finished is not echoed", err)
		}
	})
}

// lateWire keeps all writes but the first, the ClientHello.
type lateWire struct {
	*wire
	n    int
	late []byte
}

func (w *lateWire) Write(p []byte) (int, error) {
	if w.n++; w.n == 1 {
		return w.wire.Write(p)
	}
	w.late = append(w.late, p...)
	return len(p), nil
}

func TestFullSocketCountsPlaintext(t *testing.T) {
	for _, blind := range []bool{false, true} {
		s := newRig(t, nil).serve(serverConfig())
		client, _ := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		s.sock.mu.Lock()
		s.sock.out, s.sock.room, s.sock.blind = nil, 0, blind
		s.sock.mu.Unlock()
		want, random := pattern(300_000), rand.New(rand.NewPCG(testkit.Seed(t, 1), 2))
		n := 0
		s.rig.do(func() {
			s.send(want)
			n = len(s.pending)
		})
		if n != len(want) {
			t.Fatalf("%d bytes pending with a full socket, want all %d", n, len(want))
		}
		read := make(chan []byte)
		go func() {
			got := make([]byte, len(want))
			_, _ = io.ReadFull(client, got)
			read <- got
		}()
		for wait := true; wait; {
			s.sock.allow(1000 + random.IntN(40_000))
			runtime.Gosched()
			s.rig.do(func() { wait = len(s.pending) > 0 })
		}
		if got := <-read; !bytes.Equal(got, want) {
			t.Fatal("not what was sent")
		}
	}
}

func TestAlertsAndReasons(t *testing.T) {
	for _, tt := range []struct {
		name  string
		input string
		want  string
	}{
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "plain HTTP"},
		{"PROXY", "PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n", "PROXY protocol"},
		{"PROXY v2", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "PROXY protocol"},
		{"garbage", "\x00\x01\x02\x03\x04\x05\x06", "does not look like a TLS handshake"},
		{"SSLv2", "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10", "SSLv2"},
		{"too long", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 10), "oversized"},
		{"not a hello", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "error decoding message"},
		{"alert", "\x15\x03\x01\x00\x02\x02\x28", "handshake failure"},
		{"huge hello", hugeHello("\x01\xff\xff"), "exceeds maximum"},
		{"long hello", hugeHello("\x00\x90\x00"), "exceed 32 KiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRig(t, nil).serve(serverConfig())
			s.sock.feed([]byte(tt.input), 1<<20)
			if err := s.end(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("failed with %v, want something with %q", err, tt.want)
			}
			s.sock.hangUp(io.EOF)
			s.rig.do(func() {
				if s.rig.shared.Pending != 0 || s.rig.shared.waiting.Len() != 0 {
					t.Error("something is left of it")
				}
			})
		})
	}
}

// hugeHello is a ClientHello in pieces that announces so many bytes.
func hugeHello(size string) string {
	s := "\x16\x03\x01\x04\x00" + "\x01" + size + strings.Repeat("\x03", 1020)
	for range 80 {
		s += "\x16\x03\x01\x04\x00" + strings.Repeat("\x03", 1024)
	}
	return s
}

func TestClientsErrors(t *testing.T) {
	mutual := serverConfig()
	mutual.ClientAuth = tls.RequireAndVerifyClientCert
	mutual.ClientCAs = x509.NewCertPool()
	alpn := serverConfig()
	alpn.NextProtos = []string{"ours"}
	old := clientConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	theirs := clientConfig()
	theirs.NextProtos = []string{"theirs"}
	own := clientConfig()
	own.Certificates = []tls.Certificate{certificate()}
	for _, tt := range []struct {
		name           string
		server, client *tls.Config
		want           string
	}{
		{"TLS 1.1", serverConfig(), old, "unsupported versions"},
		{"ALPN", alpn, theirs, "unsupported application protocols"},
		{"no certificate", mutual, clientConfig(), "didn't provide a certificate"},
		{"unknown certificate", mutual, own, "unknown authority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRig(t, nil).serve(tt.server)
			client, _ := s.dial(tt.client, 1<<20)
			err := client.Handshake()
			if err == nil {
				_, err = client.Read(make([]byte, 1))
			}
			if err == nil || !strings.Contains(err.Error(), "remote error: tls") {
				t.Errorf("the client got %v, want an alert", err)
			}
			if err := s.end(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("failed with %v, want something with %q", err, tt.want)
			}
		})
	}
}

func TestHooks(t *testing.T) {
	for name, hook := range map[string]func(){
		"panic":  func() { panic("hook") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serverConfig()
			cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { hook(); return nil, nil }
			cfg.Certificates = nil
			r := newRig(t, nil)
			for range 5 { // more than there are workers
				s := r.serve(cfg)
				client, _ := s.dial(clientConfig(), 1<<20)
				go func() { _ = client.Handshake() }()
				if err := s.end(); err == nil || !strings.Contains(err.Error(), strings.ToLower(name)) && !strings.Contains(err.Error(), name) {
					t.Errorf("failed with %v", err)
				}
			}
		})
	}
}

func TestAbortWhileAHookWaits(t *testing.T) {
	cfg, called := serverConfig(), make(chan struct{})
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		close(called)
		<-hello.Context().Done()
		return nil, context.Cause(hello.Context())
	}
	cfg.Certificates = nil
	s := newRig(t, nil).serve(cfg)
	client, _ := s.dial(clientConfig(), 1<<20)
	go func() { _ = client.Handshake() }()
	testkit.Receive(t, "the call of the hook", called)
	s.rig.do(func() { s.conn.Abort(errors.New("enough"), false) })
	if err := s.end(); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("failed with %v", err)
	}
}

func TestOldestHandshakeIsCut(t *testing.T) {
	r := newRig(t, func(cfg *SharedConfig) { cfg.MaxWaiting = 3 })
	hello := clientHello(t)
	var all []*server
	for range 5 {
		s := r.serve(serverConfig())
		all = append(all, s)
		s.sock.feed(hello, 1<<20)
		s.waits()
	}
	for _, s := range all[:2] {
		if err := s.end(); !errors.Is(err, ErrTooManyHandshakes) {
			t.Errorf("failed with %v", err)
		}
	}
	r.do(func() {
		if n := r.shared.waiting.Len(); n != 3 {
			t.Errorf("%d wait, want 3", n)
		}
		for _, s := range all {
			s.conn.Abort(io.EOF, false)
		}
		if n := r.shared.waiting.Len(); n != 0 || r.shared.Pending != 0 {
			t.Errorf("%d wait after Abort", n)
		}
	})
}

// clientHello returns what a client sends first.
func clientHello(t testing.TB) []byte {
	w := &helloWire{}
	_ = tls.Client(w, clientConfig()).Handshake()
	if len(w.b) == 0 {
		t.Fatal("no ClientHello")
	}
	return w.b
}

type helloWire struct {
	wire
	b []byte
}

func (w *helloWire) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }
func (w *helloWire) Read([]byte) (int, error)    { return 0, io.EOF }
