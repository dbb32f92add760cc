package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/internal/shortdir"
)

// start runs the program until the test ends, and returns its address, as host:port.
func start(t testing.TB, args ...string) string {
	t.Helper()
	addr, stop := startStoppable(t, args...)
	t.Cleanup(func() {
		if code := stop(); code != 0 {
			t.Errorf("the program ended with %d", code)
		}
	})
	return addr
}

// startStoppable is start for who stops it itself. stop returns the exit code.
func startStoppable(t testing.TB, args ...string) (addr string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"-addr", "tcp://127.0.0.1:0", "-log", "error"}, args...)
		ended <- run(ctx, args, w, testWriter{t})
		_ = w.Close()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the program did not start: %d", <-ended)
	}
	_, addr, _ = strings.Cut(lines.Text(), "tcp://")
	go func() {
		for lines.Scan() { // it must be able to go on
			continue
		}
	}()
	return addr, func() int {
		cancel()
		return <-ended
	}
}

// testWriter shows what the program says on its error output.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// A peer is a plain client, made of package resp.
type peer struct {
	t       testing.TB
	conn    net.Conn
	decoder framing.Decoder
	data    []byte
	room    []byte
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return newPeer(t, conn, 4<<10)
}

// newPeer is the client at one end of conn, which reads so many bytes at once.
func newPeer(t testing.TB, conn net.Conn, room int) *peer {
	c := &peer{t: t, conn: conn, room: make([]byte, room)}
	c.decoder.Init(resp.Client{}, nil)
	return c
}

// send sends a command, whose words are separated by spaces.
func (c *peer) send(line string) { c.sendArgs(strings.Fields(line)...) }

func (c *peer) sendArgs(args ...string) { c.write(resp.AppendCommand(nil, args...)) }

func (c *peer) write(p []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the next reply.
func (c *peer) read() resp.Value {
	c.t.Helper()
	v, err := c.tryRead()
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *peer) tryRead() (resp.Value, error) {
	frame, err := c.readRaw()
	if err != nil {
		return resp.Value{}, err
	}
	return resp.Parse(append([]byte(nil), frame...))
}

// readRaw returns the next reply as it came. It is valid until the next call.
func (c *peer) readRaw() ([]byte, error) {
	for {
		rest, frame, more, err := c.decoder.Next(c.data)
		if err != nil {
			return nil, err
		}
		if c.data = rest; frame != nil {
			return frame, nil
		}
		if more {
			continue
		}
		_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := c.conn.Read(c.room)
		if err != nil {
			return nil, err
		}
		c.data = c.room[:n]
	}
}

// do sends a command and returns the reply as text.
func (c *peer) do(line string) string {
	c.t.Helper()
	c.send(line)
	return text(c.read())
}

// want sends a command and wants the reply to be this text.
func (c *peer) want(line, want string) {
	c.t.Helper()
	if got := c.do(line); got != want {
		c.t.Errorf("%s: got %s, want %s", line, got, want)
	}
}

// text shows a reply: strings as they are, "(nil)", "(error) ...", "[a b]".
func text(v resp.Value) string {
	switch v.Kind {
	case '_':
		return "(nil)"
	case '-', '!':
		return "(error) " + string(v.Str)
	case '*', '~', '%', '>':
		var parts []string
		for _, e := range v.Elems {
			parts = append(parts, text(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case ':':
		return fmt.Sprint(v.Int)
	}
	return string(v.Str)
}

// comparable skips the test if redis-server is not the one that this program answers as: others
// show numbers in another way, and have other errors. INCRBYFLOAT is that of x86, whose long double
// has 64 bits of mantissa.
func comparable(t testing.TB, redisServer string) {
	t.Helper()
	version, err := exec.Command(redisServer, "--version").Output()
	if err != nil || !strings.Contains(string(version), " v=7.0.") || runtime.GOARCH != "amd64" {
		t.Skipf("answers are compared with those of redis-server 7.0 on amd64; here is %q on %s, %v", version, runtime.GOARCH, err)
	}
}

// redisServer starts redis-server on a unix socket and returns that, or skips the test.
func redisServer(t testing.TB, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	comparable(t, path)
	socket := shortdir.Socket(t)
	args = append([]string{"--port", "0", "--unixsocket", socket, "--save", "", "--loglevel", "warning"}, args...)
	cmd := exec.Command(path, args...)
	cmd.Dir = filepath.Dir(socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 3000 { // half a minute
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			return socket
		}
		time.Sleep(10 * time.Millisecond) // it cannot say when it listens
	}
	t.Fatal("redis-server does not listen")
	return ""
}
