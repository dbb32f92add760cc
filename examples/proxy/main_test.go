package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The next process takes over with the clients, each of which stays with its backend.
func TestRestart(t *testing.T) {
	flags := []string{"-to", newBackend(t, "x").Addr().String(), "-handover", filepath.Join(t.TempDir(), "s")}
	addr, stop := start(t, flags...)
	c := dial(t, addr)
	in := bufio.NewReader(c)
	for _, want := range []string{"x\n", "one\n", "two\n"} {
		if want == "two\n" {
			if next, _ := start(t, flags...); next != addr {
				t.Errorf("the next one listens at %s, want %s", next, addr)
			}
			if out, err := stop(); err != nil {
				t.Errorf("%v, %s", err, out)
			}
		}
		if want != "x\n" {
			_, _ = io.WriteString(c, want)
		}
		if got, err := in.ReadString('\n'); err != nil || got != want {
			t.Errorf("the client reads %q, %v, want %q", got, err, want)
		}
	}
}

// start runs the program until the test ends, and returns where it listens. stop ends it, and
// returns what it has printed since.
func start(t *testing.T, flags ...string) (addr string, stop func() (out string, err error)) {
	t.Helper()
	o, err := parse(append([]string{"-addr", "tcp://127.0.0.1:0"}, flags...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	printed, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended, rest := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- run(ctx, o, zerolog.Nop(), out)
		out.Close()
	}()
	stop = sync.OnceValues(func() (string, error) {
		cancel()
		return <-rest, <-ended
	})
	t.Cleanup(func() { stop() })
	in := bufio.NewReader(printed)
	for addr == "" {
		line, err := in.ReadString('\n')
		if err != nil {
			rest <- line
			t.Fatalf("it ends before it listens: %v", err)
		}
		_, addr, _ = strings.Cut(strings.TrimSpace(line), "listening on tcp://")
	}
	go func() {
		text, _ := io.ReadAll(in)
		rest <- string(text)
	}()
	return addr, stop
}

// serveTCP has each connection served on a goroutine of its own, until the test ends.
func serveTCP(t *testing.T, serve func(c net.Conn)) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return ln
}

// backend is a server that says its name, then the lines that it gets.
func newBackend(t *testing.T, name string) net.Listener {
	t.Helper()
	return serveTCP(t, func(c net.Conn) {
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
	addr, _ := start(t, "-to", one.Addr().String()+","+two.Addr().String(), "-least", "-check", "0")
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
	out, err := stop()
	if err != nil || !strings.Contains(out, "draining") || !strings.Contains(out, "bye") {
		t.Errorf("%v, %s", err, out)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("after the drain: %d, %v", n, err)
	}
}

func TestFlags(t *testing.T) {
	var out strings.Builder
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out.String(), "-to") {
		t.Errorf("-h: %v, %q", err, out.String())
	}
}
