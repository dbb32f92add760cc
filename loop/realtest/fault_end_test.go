package realtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
