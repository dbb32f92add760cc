package tlsconn

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// hanging returns a config with a hook that waits for release, whatever becomes of its handshake.
// It counts those that are in there.
func hanging(release <-chan struct{}, in *atomic.Int32) *tls.Config {
	cfg := serverConfig()
	pair := cfg.Certificates[0]
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		in.Add(1)
		<-release
		return &pair, nil
	}
	cfg.Certificates = nil
	return cfg
}

// A hook that takes long, and whose handshake is still wanted, does not hold up the others: it asks
// somebody, and computes nothing. When it has its answer its handshake goes on.
func TestSlowHooks(t *testing.T) {
	r := newRig(t, func(cfg *SharedConfig) {
		cfg.Workers = NewWorkers(1, 2)
		cfg.Workers.patience = 2 * time.Millisecond
	})
	var in atomic.Int32
	release := make(chan struct{})
	slow := make(chan error, 2)
	for i := range 2 {
		s := r.serve(hanging(release, &in))
		c, _ := s.dial(clientConfig(), 1<<20)
		go func() { slow <- c.Handshake() }()
		testkit.Eventually(t, "a hook is not called", func() bool { return int(in.Load()) == i+1 })
	}
	s := r.serve(serverConfig())
	s.answer = echo
	c, _ := s.dial(clientConfig(), 1<<20)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	close(release)
	for range 2 {
		if err := <-slow; err != nil {
			t.Error("the handshake of a slow hook:", err)
		}
	}
	r.shared.cfg.Workers.settled(t)
}

// A handshake has given back its turn when its loop hears of it, which may have it go on at once.
func TestTurnIsOverFirst(t *testing.T) {
	w := NewWorkers(3, 2)
	var early atomic.Int32
	r := newRig(t, func(cfg *SharedConfig) {
		post := cfg.Post
		cfg.Workers = w
		cfg.Post = func(f func()) bool {
			early.Add(int32(len(w.computing)))
			return post(f)
		}
	})
	versions(t, func(t *testing.T, cfg *tls.Config) {
		cfg.ClientAuth = tls.RequestClientCert
		for range 3 {
			s := r.serve(cfg)
			c, _ := s.dial(clientConfig(), 1<<20)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			<-s.opened
		}
	})
	if n := early.Load(); n != 0 {
		t.Errorf("%d were told with their turns not given back", n)
	}
}

// hostileError is what a hook returns.
type hostileError struct{ which string }

func (e hostileError) Error() string { e.hit("Error"); return "hostile" }
func (e hostileError) Unwrap() error { e.hit("Unwrap"); return nil }
func (e hostileError) As(any) bool   { e.hit("As"); return false }
func (e hostileError) Is(error) bool { e.hit("Is"); return false }

func (e hostileError) hit(method string) {
	if e.which == method {
		panic(method + " panics")
	}
}

// A failed handshake is reported, even if formatting the hook's error panics, as for a typed nil.
func TestHostileErrorsOfHooks(t *testing.T) {
	var none *net.OpError
	for _, err := range []error{none, hostileError{"Error"}, hostileError{"Unwrap"}, hostileError{"As"}, hostileError{"Is"}} {
		cfg := serverConfig()
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, err }
		s := newRig(t, nil).serve(cfg)
		s.sock.feed(clientHello(t), 1<<20)
		if told := s.end(); told == nil || !strings.HasPrefix(told.Error(), "TLS handshake: ") {
			t.Errorf("%T: failed with %v", err, told)
		}
	}
}
