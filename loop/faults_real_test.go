package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// unable is a codec whose state cannot be restored.
type unable struct{ codec.Lines }

func (*unable) New() codec.Codec      { return new(unable) }
func (*unable) Save() ([]byte, error) { return []byte("state"), nil }
func (*unable) Restore([]byte) error  { return errors.New("of another version") }

// A codec that refuses the state of a connection that moves leaves that where it was: its handler
// hears of it, and its peer does not.
func TestRestoreThatFails(t *testing.T) {
	for name, cd := range map[string]codec.Codec{"Restore fails": &unable{}, "no Saver": codec.Lines{}} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan error, 2)
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: cd, Accept: func(c *loop.Conn) loop.Handler {
				return script{
					Message: func(c *loop.Conn, msg []byte) error { return c.Send(msg) },
					Close:   func(_ *loop.Conn, err error) { closed <- err },
				}
			}}
			startWith(t, t.Context(), srv)
			before := dial(t, srv.LocalAddr())
			mustEcho(t, before, "hello\n")
			near, far := tcpPair(t)
			defer far.Close()
			stays, err := near.(*net.TCPConn).File() // of the process that it comes from
			if err != nil {
				t.Fatal(err)
			}
			defer stays.Close()
			err = srv.MoveIn(&inside.Moved{Net: near, Kind: inside.Kind{Addr: srv.Addr}, Codec: []byte("state"), Opened: 1, LastRead: -1, LastWrite: -1,
				IdleTimeout: -1, Local: near.LocalAddr(), Remote: near.RemoteAddr()})
			if err == nil {
				t.Error("it is taken, want an error")
			}
			if err := receive(t, closed, "OnClose"); err == nil {
				t.Error("OnClose got nil, want an error")
			}
			_ = far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := far.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the peer reads %d bytes, %v; want nothing", n, err)
			}
			secrets := []byte("secrets")
			if err := srv.MoveIn(&inside.Moved{Kind: inside.Kind{Addr: "tcp://elsewhere"}, TLS: secrets}); err == nil || !bytes.Equal(secrets, make([]byte, 7)) {
				t.Errorf("from elsewhere: %v, and %q is left of its keys; want an error, and zeros", err, secrets)
			}
			mustEcho(t, before, "hello again\n")
			if st := srv.Stats(); st.Refused != 0 || st.Conns != 1 {
				t.Errorf("%d refused, %d open, want 0 and 1", st.Refused, st.Conns)
			}
		})
	}
}

// Wait does not wait for ever for a hook of a Dialer, and says which it is.
func TestWaitIsBounded(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	srv := &loop.Server{}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	blocks, blocked := make(chan struct{}), make(chan struct{})
	d := loop.Dialer{Control: func(string, string, syscall.RawConn) error {
		close(blocked)
		<-blocks
		return nil
	}}
	told := make(chan error, 1)
	d.Dial(srv.Loops()[0], "tcp://"+listenTCP(t), func(_ *loop.Conn, err error) loop.Handler { told <- err; return nil })
	<-blocked
	began := time.Now()
	end()
	err := srv.Wait()
	if err == nil || !strings.Contains(err.Error(), "1 that dial") || !strings.Contains(err.Error(), "Dialer.Control") {
		t.Errorf("Wait: %v, want an error that names Dialer.Control", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("Wait took %v", took)
	}
	if err := <-told; !errors.Is(err, loop.ErrServerClosed) {
		t.Errorf("open got %v, want ErrServerClosed", err)
	}
	close(blocks) // the goroutine goes on in a server that has ended
}

// The zone of an address is no part of the name that a certificate is for.
func TestZoneIsNoPartOfTheName(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	cert := looptest.Certificate("::1")
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}}, Accept: silent}
	startWith(t, t.Context(), srv)
	zone := ""
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Flags&net.FlagLoopback != 0 {
			zone = l.Name
		}
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	told := make(chan error, 1)
	d := loop.Dialer{TLS: &tls.Config{RootCAs: roots}}
	d.Dial(srv.Loops()[0], "tcp://[::1%"+zone+"]:"+port, func(_ *loop.Conn, err error) loop.Handler { told <- err; return nil })
	if err := <-told; err != nil {
		t.Errorf("dialed ::1%%%s: %v", zone, err)
	}
}

// A loop that would wait for itself gets an error.
func TestWaitingOnALoop(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Accept: silent}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range srv.Loops() {
		for name, waits := range map[string]func() error{
			"Shutdown": func() error { return srv.Shutdown(context.Background()) },
			"Wait":     srv.Wait,
		} {
			result := make(chan error, 1)
			if err := l.Post(func() { result <- waits() }); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-result:
				if err == nil || !strings.Contains(err.Error(), name+" was called on a loop") {
					t.Errorf("%s on loop %d: %v", name, l.Index(), err)
				}
			case <-time.After(patience):
				t.Fatalf("%s on loop %d hangs", name, l.Index())
			}
		}
	}
	if srv.Draining() {
		t.Error("the server drains, because of a call that failed")
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
