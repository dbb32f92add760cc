package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/listening"
)

// output is what the program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// start runs the program until the test ends, and returns where it listens.
func start(t *testing.T, flags ...string) (addr string, stop func() (code int, out string)) {
	t.Helper()
	var shown func() string
	return startShown(t, &shown, flags...)
}

// startShown is start for a test that looks at what the program has printed until now.
func startShown(t *testing.T, shown *func() string, flags ...string) (addr string, stop func() (code int, out string)) {
	t.Helper()
	var out, errOut output
	*shown = func() string { return out.String() }
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"-addr", "tcp://127.0.0.1:0"}, flags...), &out, &errOut) }()
	stop = sync.OnceValues(func() (int, string) {
		cancel()
		c := <-code
		return c, out.String() + errOut.String()
	})
	t.Cleanup(func() { stop() })
	listening := regexp.MustCompile(`listening on tcp://(\S+)`)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if m := listening.FindStringSubmatch(out.String()); m != nil {
			return m[1], stop
		}
		if time.Now().After(end) {
			t.Fatalf("does not start: %s%s", out.String(), errOut.String())
		}
	}
}

// backend is a server that says its name, then the lines that it gets.
func newBackend(t *testing.T, name string) net.Listener {
	t.Helper()
	return listening.TCP(t, func(c net.Conn) {
		fmt.Fprintln(c, name)
		_, _ = io.Copy(c, c)
	})
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// name returns which backend answers.
func name(t *testing.T, addr string) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Errorf("no name: %v", err)
	}
	return strings.TrimSpace(line)
}

func TestRoundRobinAndFailover(t *testing.T) {
	t.Run("checked now and then", func(t *testing.T) { roundRobinAndFailover(t, "1h") })
	// A check is wrong about a backend if the machine is slow, so that it gets fewer connections.
	t.Run("checked all the time", func(t *testing.T) { roundRobinAndFailover(t, "20ms") })
}

func roundRobinAndFailover(t *testing.T, check string) {
	one, two := newBackend(t, "one"), newBackend(t, "two")
	addr, _ := start(t, "-to", one.Addr().String()+","+two.Addr().String(), "-check", check, "-connect", "1m")
	count := func() map[string]int {
		got := make(map[string]int)
		for range 10 {
			got[name(t, addr)]++
		}
		return got
	}
	if got := count(); got["one"]+got["two"] != 10 || check == "1h" && got["one"] != 5 {
		t.Errorf("served by %v", got)
	}
	two.Close()
	if got := count(); got["one"] != 10 { // also before a check has found out
		t.Errorf("with one backend gone, served by %v", got)
	}
	one.Close()
	c := dial(t, addr)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("with all backends gone: %d, %v", n, err)
	}
}

func TestLeastConnections(t *testing.T) {
	one, two := newBackend(t, "one"), newBackend(t, "two")
	addr, _ := start(t, "-to", one.Addr().String()+","+two.Addr().String(), "-balance", "leastconn", "-check", "0")
	got := make(map[string]int)
	for range 10 {
		line, err := bufio.NewReader(dial(t, addr)).ReadString('\n') // which stays open
		if err != nil {
			t.Fatal(err)
		}
		got[line]++
	}
	if got["one\n"] != 5 || got["two\n"] != 5 {
		t.Errorf("served by %v", got)
	}
}

func TestHalfCloseAndBytes(t *testing.T) {
	addr, _ := start(t, "-to", newBackend(t, "x").Addr().String())
	c := dial(t, addr)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, append([]byte("x\n"), data...)) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(data)+2, err)
	}
}

func TestProxyHeader(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr, _ := start(t, "-to", ln.Addr().String(), "-send-proxy", "-check", "0")
	c := dial(t, addr)
	c.Write([]byte("hello"))
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.SetDeadline(time.Now().Add(time.Minute))
	want := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"), 127, 0, 0, 1, 127, 0, 0, 1)
	for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
		port := a.(*net.TCPAddr).Port
		want = append(want, byte(port>>8), byte(port))
	}
	want = append(want, "hello"...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q; %v", got, want, err)
	}
}

func TestDrain(t *testing.T) {
	addr, stop := start(t, "-to", newBackend(t, "x").Addr().String(), "-drain", "200ms")
	c := dial(t, addr)
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	code, out := stop()
	if code != 0 || !strings.Contains(out, "draining") || !strings.Contains(out, "bye") {
		t.Errorf("code %d, %s", code, out)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("after the drain: %d, %v", n, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-to", "nowhere"}, {"-to", "a:1", "-balance", "random"}, {"-to", "a:1", "-idle", "-1s"}, {"-to", "a:1", "x"},
		{"-to", "a:1", "-connect", "0"}, {"-to", "a:1", "-drain", "0"}, {"-to", "a:1", "-check", "-1s"}, {"-to", "a:1", "-loops", "-1"},
		{"-to", "a:1", "-accept-proxy=everybody"}, {"-to", "a:1", "-accept-proxy=10.0.0.0/33"}, {"-to", "a:1", "-tls", "-tls-cert", "x"}, {"-to", "a:1", "-addr", "nowhere"}, {"-to", "a:1", "-addr", "udp://127.0.0.1:0"},
	} {
		var out, errOut output
		if code := run(t.Context(), args, &out, &errOut); code != 2 || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: code %d, %q", args, code, errOut.String())
		}
	}
	var out output
	if code := run(t.Context(), []string{"-h"}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "-to") {
		t.Errorf("-h: code %d, %q", code, out.String())
	}
}
