package realtest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// readToEnd returns how the input ends, nil for an orderly end. It needs less memory than io.Copy.
func readToEnd(c net.Conn) (err error) {
	var b [64]byte
	for err == nil {
		_, err = c.Read(b[:])
	}
	return err
}

// secure starts a server with TLS, which other tests have by LOOPWHEEL_TLS.
func secure(t *testing.T, srv *loop.Server) net.Addr {
	t.Helper()
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
	return start(t, srv)
}

func mustDialSecure(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	d := &net.Dialer{Timeout: 20 * time.Second}
	c, err := tls.DialWithDialer(d, "tcp", addr.String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	return c
}

func heapNow() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// askAll has each connection echo once.
func askAll(t *testing.T, conns []net.Conn) {
	t.Helper()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			want := fmt.Appendf(nil, "message of %d", i)
			got := make([]byte, len(want))
			if _, err := c.Write(want); err != nil {
				t.Error(err)
			} else if _, err := io.ReadFull(c, got); err != nil || string(got) != string(want) {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
	wg.Wait()
}

// beginnersChild opens $COUNT connections to $ADDR, sends the beginning of a ClientHello on each,
// and says in the file $RESULT how many of them were closed in the end. It is a process of its own,
// as one may not open as many descriptors as both ends take.
func beginnersChild() {
	n, _ := strconv.Atoi(os.Getenv("COUNT"))
	var closed atomic.Int64
	var wg sync.WaitGroup
	for range n {
		c, err := net.Dial("tcp", os.Getenv("ADDR"))
		if err == nil {
			_, err = c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		wg.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if !errors.Is(readToEnd(c), os.ErrDeadlineExceeded) {
				closed.Add(1)
			}
		})
	}
	fmt.Println("ready")
	wg.Wait()
	_ = os.WriteFile(os.Getenv("RESULT"), fmt.Append(nil, closed.Load()), 0o600)
	untilInputEnds()
}

// Thousands begin a handshake and do not go on. Who is connected is served, who comes is let in,
// each of the others costs a few KB at most, and all go at the time-out.
func TestFaultHandshakesLeftOpen(t *testing.T) {
	n, timeout := 300, 3*time.Second
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		n, timeout = 10_000, 12*time.Second // all of them are to be open at once
	}
	testkit.NeedFiles(t, n+400)
	srv := &loop.Server{Timeouts: loop.Timeouts{Handshake: timeout}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	addr := secure(t, srv)
	good := make([]net.Conn, 100)
	for i := range good {
		good[i] = mustDialSecure(t, addr)
	}
	askAll(t, good)
	before := heapNow()
	result := filepath.Join(t.TempDir(), "result")
	if c := startChild(t, "beginners", "ADDR="+addr.String(), fmt.Sprint("COUNT=", n), "RESULT="+result); c.addr != "ready" {
		t.Fatal(c.addr)
	}
	testkit.Eventually(t, "all are accepted", func() bool { return srv.Stats().Accepted == uint64(n+len(good)) })
	open := int(srv.Stats().Accepted) - len(good) - int(srv.Stats().Refused)
	each := (heapNow() - before) / n
	t.Logf("%d handshakes open, %d bytes of live heap each", open, each)
	most := 6 << 10
	if testhook.DefaultEngine() == "net" {
		most *= 2 // there are goroutines and read buffers for each socket
	}
	if each > most {
		t.Errorf("%d bytes for a handshake that has begun, want %d at most", each, most)
	}
	askAll(t, good)
	askAll(t, []net.Conn{mustDialSecure(t, addr)})
	var got []byte
	testkit.Eventually(t, "the child has said how many were closed", func() bool {
		got, _ = os.ReadFile(result)
		return len(got) > 0
	})
	testkit.Want(t, "connections that were closed", string(got), fmt.Sprint(n))
	askAll(t, good)
	if st := srv.Stats(); st.Refused != uint64(n) || st.Conns != len(good)+1 {
		t.Errorf("%d refused and %d connections, want %d and %d", st.Refused, st.Conns, n, len(good)+1)
	}
}

// idleChild opens $COUNT connections to $ADDR, by TLS if $SECURE is set. Each has $SIZE bytes
// echoed some times, and then says nothing.
func idleChild() {
	n, _ := strconv.Atoi(os.Getenv("COUNT"))
	size, _ := strconv.Atoi(os.Getenv("SIZE"))
	d := loop.Dialer{Codec: codec.Raw{}, Timeout: time.Minute}
	if os.Getenv("SECURE") != "" {
		d.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	srv := &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return nil }}
	if err := srv.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	message, atOnce := make([]byte, size), make(chan struct{}, 16)
	for range n {
		atOnce <- struct{}{}
		d.Dial(srv.Loops()[0], "tcp://"+os.Getenv("ADDR"), func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			_ = c.Send(message)
			left := 12 * size // TLS records begin small
			return loop.HandlerFunc(func(c *loop.Conn, p []byte) error {
				if left -= len(p); left == 0 {
					<-atOnce
				} else if left%size == 0 {
					return c.Send(message)
				}
				return nil
			})
		})
	}
	for range cap(atOnce) {
		atOnce <- struct{}{}
	}
	fmt.Println("ready")
	untilInputEnds()
}

// An idle connection with TLS 1.3 takes at most 1.5 KB of heap more than a plain one, after small
// messages and after large ones.
func TestIdleTLSHeap(t *testing.T) {
	testkit.NeedSlow(t, "it opens 40,000 connections, and waits until they rest")
	if testhook.CryptoTLS() {
		t.Skip("crypto/tls keeps more")
	}
	const n, more = 10_000, 1500
	testkit.NeedFiles(t, n+400)
	for _, size := range []int{64, 16 << 10} {
		var plain int
		for _, secured := range []string{"", "yes"} {
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
			if secured != "" {
				srv.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
			}
			if err := srv.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := heapNow()
			c := startChild(t, "idle", "ADDR="+srv.LocalAddr().String(), fmt.Sprint("COUNT=", n), fmt.Sprint("SIZE=", size), "SECURE="+secured)
			testkit.Want(t, "the child", c.addr, "ready")
			testkit.Want(t, "connections", srv.Stats().Conns, n)
			each := (heapNow() - before) / n
			if secured == "" {
				plain = each
			} else { // ciphers go after 8 to 16 seconds
				first := each
				testkit.EventuallyIn(t, time.Minute, fmt.Sprintf("%d bytes a connection, %d more than a plain one, at most", plain+more, more), func() bool {
					time.Sleep(time.Second) // heapNow takes its time
					each = (heapNow() - before) / n
					return each <= plain+more
				})
				t.Logf("%d connections after %d bytes: %d bytes of live heap each, then %d, plain ones %d", n, size, first, each, plain)
			}
			c.end()
			_ = srv.Shutdown(context.Background())
		}
	}
}
