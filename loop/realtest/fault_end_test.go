package realtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// brokenChild is an echo server whose loops break: "break" closes what one of them waits with. It
// ends with what Wait returns, in one line.
func brokenChild() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reasons := make(chan error, 1000)
	srv := &loop.Server{
		Addr:     "tcp://127.0.0.1:0",
		NumLoops: 2,
		Accept: func(*loop.Conn) loop.Handler {
			return script{Message: echo, Close: func(_ *loop.Conn, err error) { reasons <- err }}
		},
	}
	secureIfAsked(srv)
	if err := srv.Start(ctx); err != nil {
		fail(err)
	}
	fmt.Println(srv.LocalAddr().Network(), srv.LocalAddr())
	go obey(func([]string) string {
		fd, found := epollOf(srv.Loops()[1])
		if !found {
			return "0"
		}
		closeFD(fd)
		srv.Loops()[1].Post(func() {}) // it may sleep, and would not notice
		return "1"
	})
	err := srv.Wait()
	count := make(map[string]int)
	for close(reasons); ; {
		reason, ok := <-reasons
		if !ok {
			break
		}
		switch {
		case errors.Is(reason, loop.ErrServerClosed):
			count["drained"]++
		case reason == io.EOF:
			count["left"]++
		default:
			count["broken"]++
		}
	}
	fmt.Println(count["drained"], count["broken"], srv.Stats().Conns, strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
}

// epollOf returns the descriptor of the epoll instance that holds the loop's connections. If there
// are two, the later one is for Go's poller only.
func epollOf(l *loop.Loop) (fd int, found bool) {
	own := make(chan string, 1)
	_ = l.Post(func() {
		for c := range l.Conns() {
			own <- c.RemoteAddr().String()
			return
		}
		own <- ""
	})
	remote, target := <-own, -1
	var all []int
	for fd := range 1000 {
		if peerOf(fd) == remote {
			target = fd // of that connection
		}
		if strings.Contains(fileOf(fd), "eventpoll") {
			all = append(all, fd)
		}
	}
	at := slices.IndexFunc(all, func(fd int) bool { return slices.Contains(watchedBy(fd), target) })
	if at < 0 {
		return 0, false
	}
	return all[at], true
}

// fileOf says what a descriptor is.
func fileOf(fd int) string {
	name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return name
}

// watchedBy returns which descriptors an epoll instance watches.
func watchedBy(fd int) (watched []int) {
	b, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" {
			n, _ := strconv.Atoi(f[1])
			watched = append(watched, n)
		}
	}
	return watched
}

// What a loop waits with is closed under it. The loop ends; the connections of the other one are
// drained, and Wait says what has happened.
func TestFaultLoopEndsUnasked(t *testing.T) {
	needSlow(t, "it breaks a server in a process of its own")
	needLinux(t)
	server := startPuppet(t, "broken")
	network, addr := server.address()
	const conns = 20
	for range conns {
		c, err := connect(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := roundTrip(c); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if n := server.number("break"); n != 1 {
		t.Fatalf("found %d epoll descriptors", n)
	}
	line := server.hear()
	took := time.Since(began)
	t.Logf("after %v: %s", took.Round(time.Millisecond), line)
	var drained, broken, left int
	if _, err := fmt.Sscan(line, &drained, &broken, &left); err != nil {
		t.Fatal(err)
	}
	if drained != conns/2 || broken != conns/2 || left != 0 {
		t.Errorf("%d connections were drained, %d broke, %d are left", drained, broken, left)
	}
	if !strings.Contains(line, "ended") || took > 10*time.Second {
		t.Errorf("Wait returned %q after %v", line, took)
	}
	server.ends()
}

// Peers that have closed one direction still get the replies that wait for them, and those that do
// not take them are cut.
func TestFaultHalfOpenPeers(t *testing.T) {
	needSlow(t, "many megabytes of replies")
	const size, clients = 8 << 20, 20
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			srv := repliesTo(t, network, size, time.Minute)
			var conns []net.Conn
			for range clients {
				conns = append(conns, halfOpen(t, srv))
			}
			time.Sleep(200 * time.Millisecond)
			for _, c := range conns {
				if got, err := io.Copy(io.Discard, c); got != size || err != nil {
					t.Errorf("got %d bytes, %v", got, err)
				}
			}
			testkit.Eventually(t, "all are closed", func() bool { return srv.Stats().Conns == 0 })
			if st := srv.Stats(); st.Cut != 0 {
				t.Errorf("%d were cut", st.Cut)
			}
		})
		t.Run(network+", without reading", func(t *testing.T) {
			srv := repliesTo(t, network, size, 2*time.Second)
			halfOpen(t, srv)
			testkit.Eventually(t, "it is cut", func() bool { return srv.Stats().Cut == 1 })
			testkit.Eventually(t, "it is closed", func() bool { return srv.Stats().Conns == 0 })
		})
	}
}

// repliesTo starts a server that answers with so many bytes.
func repliesTo(t *testing.T, network string, size int, closeTimeout time.Duration) *loop.Server {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", MaxOutbound: 2 * size, CloseTimeout: closeTimeout,
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send(reply(size)) })
		},
	}
	if network == "unix" {
		srv.Addr = "unix://" + testkit.SocketPath(t)
	}
	start(t, srv)
	return srv
}

// halfOpen asks, and closes its direction.
func halfOpen(t *testing.T, srv *loop.Server) net.Conn {
	c := dial(t, srv.LocalAddr())
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	c.Write([]byte("x"))
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return c
}

// startingChild tries to start servers with very few descriptors, one after the other, and says how
// each attempt went.
func startingChild() {
	accept := func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }
	// What the runtime opens when it is first used is opened now.
	once := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: accept, NumLoops: 1}
	ctx, cancel := context.WithCancel(context.Background())
	if err := once.Start(ctx); err != nil {
		fail(err)
	}
	if _, err := net.Dial("tcp", once.LocalAddr().String()); err != nil {
		fail(err)
	}
	cancel()
	if err := once.Wait(); err != nil {
		fail(err)
	}
	time.Sleep(100 * time.Millisecond)
	runtime.GC() // closes the connection
	time.Sleep(100 * time.Millisecond)
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	failed, started := 0, 0
	for limit := fds; started < 3; limit++ {
		setSoftLimit(limit)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: accept, NumLoops: 4}
		ctx, cancel := context.WithCancel(context.Background())
		err := srv.Start(ctx)
		cancel()
		switch {
		case err == nil:
			if started++; srv.Wait() != nil {
				fail(errors.New("Wait failed"))
			}
		case !errors.Is(err, syscall.EMFILE):
			fail(fmt.Errorf("with %d descriptors: %w", limit, err))
		default:
			failed++
			if strings.Contains(err.Error(), "\n") {
				fail(fmt.Errorf("not one error: %w", err))
			}
		}
		setSoftLimit(1000)
		for end := time.Now().Add(30 * time.Second); descriptors() > fds || runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				buf := make([]byte, 1<<20)
				os.Stderr.Write(buf[:runtime.Stack(buf, true)])
				fail(fmt.Errorf("with %d descriptors something leaked: %d descriptors of %d, %d goroutines of %d",
					limit, descriptors(), fds, runtime.NumGoroutine(), goroutines))
			}
		}
	}
	fmt.Println(failed, started)
}

// Start fails with one clear error, and leaves nothing behind, wherever on its way the descriptors
// run out.
func TestFaultStartWithoutDescriptors(t *testing.T) {
	needSlow(t, "dozens of servers in a process of its own")
	needLinux(t)
	testkit.NeedFiles(t, 1000)
	child := startPuppet(t, "start")
	line := child.hear()
	t.Logf("failed and succeeded: %s", line)
	child.ends()
}
