package realtest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// leaving is a codec whose protocol has a last word.
type leaving struct{ codec.Raw }

const lastWord = "bye"

func (leaving) AppendFarewell(dst []byte, _ error) []byte { return append(dst, lastWord...) }

// A lastWords is a server that sends much and closes, by Close or by the drain, with all that
// becomes of that.
type lastWords struct {
	much   int
	drain  bool
	engine loop.Engine
	tls    bool
	codec  codec.Codec
	srv    *loop.Server

	patience time.Duration // the server's Timeouts.Close

	closing chan struct{} // closed when the close has begun
	ended   chan error
	asked   atomic.Bool
}

func (w *lastWords) String() string {
	return fmt.Sprintf("%d bytes, engine %d, drain %v, TLS %v, %T", w.much, w.engine, w.drain, w.tls, w.codec)
}

// eachEnd calls f for each engine and each way to end.
func eachEnd(t *testing.T, closed, drained int, f func(t *testing.T, w *lastWords)) {
	if os.Getenv("LOOPWHEEL_ENGINE") != "" {
		t.Skip("without LOOPWHEEL_ENGINE it runs on all engines")
	}
	engines := []loop.Engine{loop.EngineNet}
	if runtime.GOOS == "linux" {
		engines = append(engines, loop.EngineGnet, loop.EngineEpoll)
	}
	for _, e := range engines {
		for _, w := range []*lastWords{
			{much: closed, engine: e},
			{much: drained, engine: e, drain: true},
			{much: closed, engine: e, tls: true, codec: leaving{}},
			{much: drained, engine: e, drain: true, tls: true},
		} {
			t.Run(w.String(), func(t *testing.T) { f(t, w) })
		}
	}
}

// serve starts the server on ln, which sends all to a client that has said something.
func (w *lastWords) serve(t *testing.T, ln net.Listener) {
	t.Helper()
	w.ended, w.closing = make(chan error, 1), make(chan struct{})
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	w.srv = &loop.Server{Listeners: []loop.Listener{{AcceptFrom: ln}}, NumLoops: 1, Engine: w.engine, Codec: w.codec, Limits: loop.Limits{MaxOutbound: 64 << 20},
		Timeouts: loop.Timeouts{Close: w.patience}, Hooks: loop.Hooks{OnClosing: func(*loop.Conn, error) { close(w.closing) }}}
	w.srv.Accept = func(c *loop.Conn) loop.Handler {
		return script{
			Message: func(c *loop.Conn, _ []byte) error {
				if w.asked.Swap(true) {
					return nil
				}
				if _, err := c.Write(bytes.Repeat([]byte("x"), w.much)); err != nil {
					return err
				}
				if w.drain {
					end()
				} else {
					c.Close()
				}
				return nil
			},
			Close: func(_ *loop.Conn, err error) { w.ended <- err },
		}
	}
	if w.tls {
		w.srv.Listeners[0].TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
	}
	if err := w.srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// client makes nc speak TLS if the server does.
func (w *lastWords) client(nc net.Conn) net.Conn {
	if w.tls {
		return tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	}
	return nc
}

// mustArrive checks that all of it came, and that nothing is said to be lost.
func (w *lastWords) mustArrive(t *testing.T, got int, readErr error) {
	t.Helper()
	want := w.much
	if w.codec != nil {
		want += len(lastWord)
	}
	if got != want || readErr != nil && !errors.Is(readErr, io.EOF) {
		t.Errorf("the peer has %d bytes of %d, and then %v", got, want, readErr)
	}
	var reason error
	if w.drain {
		reason = loop.ErrServerClosed
	}
	if err := <-w.ended; err != reason {
		t.Errorf("OnClose got %v, want %v", err, reason)
	}
	if n := w.srv.Stats().Cut; n != 0 {
		t.Errorf("%d connections count as cut", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := w.srv.Shutdown(ctx); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// A peer that reads slowly, and goes on sending, gets all that was sent before the close.
func TestLastWordsToASlowReader(t *testing.T) {
	eachEnd(t, 300<<10, 600<<10, func(t *testing.T, w *lastWords) {
		t.Parallel()
		ln := listenTCP(t)
		w.serve(t, ln)
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.(*net.TCPConn).SetReadBuffer(16 << 10)
		c := w.client(nc)
		if _, err := c.Write([]byte("go")); err != nil {
			t.Fatal(err)
		}
		got, buf := 0, make([]byte, 16<<10)
		for err == nil {
			time.Sleep(100 * time.Millisecond) // a reader that is slow
			var n int
			n, err = c.Read(buf)
			got += n
			_, _ = c.Write([]byte("I am still here"))
		}
		w.mustArrive(t, got, err)
	})
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// What a peer does not take is lost, and that is said: in OnClose, in Stats and by Wait.
func TestLossIsSaid(t *testing.T) {
	for name, leave := range map[string]func(nc *net.TCPConn){
		"it reads nothing": func(*net.TCPConn) {},
		"it resets":        func(nc *net.TCPConn) { _ = nc.SetLinger(0); _ = nc.Close() },
		"it half-closes, and then goes": func(nc *net.TCPConn) {
			_ = nc.CloseWrite()
			time.Sleep(20 * time.Millisecond) // the reset is not to overtake the end
			_ = nc.SetLinger(0)
			_ = nc.Close()
		},
	} {
		eachEnd(t, 8<<20, 8<<20, func(t *testing.T, w *lastWords) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ln := listenTCP(t)
				w.patience = 500 * time.Millisecond
				w.serve(t, ln)
				nc, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				_ = nc.(*net.TCPConn).SetReadBuffer(4 << 10)
				c := w.client(nc)
				if _, err := c.Write([]byte("go")); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				<-w.closing
				began := time.Now()
				leave(nc.(*net.TCPConn))
				err = <-w.ended
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("OnClose comes after %v", took)
				}
				if !errors.Is(err, loop.ErrOutputLost) || w.drain && !errors.Is(err, loop.ErrServerClosed) {
					t.Errorf("OnClose got %v, want ErrOutputLost", err)
				}
				if n := w.srv.Stats().Cut; n != 1 {
					t.Errorf("%d connections count as cut, want 1", n)
				}
				err = w.srv.Shutdown(context.Background())
				var cut *loop.DrainError
				if is := errors.As(err, &cut) && cut.Cut == 1; is != w.drain {
					t.Errorf("the server ended with %v", err)
				}
			})
		})
	}
}
