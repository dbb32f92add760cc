package realtest_test

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// hashChild takes in what it is sent and answers nothing. It pauses each connection at its first
// byte, until "resume". "paused" says how many pauses there were, "ended" how many connections have
// ended, "got" how many bytes those sent that ended with io.EOF, "sums" their hashes. "hoard" opens
// all descriptors that are left, "release" closes them.
func hashChild() {
	setLimit(256)
	h := &hashes{}
	var hoard []int
	servePuppet(&loop.Server{NumLoops: 2, Accept: h.accept}, func(words []string) string {
		h.mu.Lock()
		defer h.mu.Unlock()
		switch words[0] {
		case "resume":
			for _, ref := range h.resting {
				_ = ref.Tell((*loop.Conn).ResumeRead)
			}
			h.resting = nil
			return "ok"
		case "paused":
			return strconv.Itoa(h.pauses)
		case "got":
			return strconv.Itoa(h.got)
		case "ended":
			return strconv.Itoa(h.ended)
		case "sums":
			return strings.Join(h.sums, " ")
		case "hoard":
			for {
				fd, err := dupFD(2)
				if err != nil {
					return "ok"
				}
				hoard = append(hoard, fd)
			}
		case "release":
			for _, fd := range hoard {
				closeFD(fd)
			}
			hoard = nil
			return "ok"
		}
		return "what?"
	})
}

type hashes struct {
	mu                 sync.Mutex
	pauses, got, ended int
	sums               []string
	resting            []loop.Ref
}

func (h *hashes) accept(c *loop.Conn) loop.Handler {
	sum, got := sha256.New(), 0
	return script{
		Message: func(c *loop.Conn, msg []byte) error {
			if got == 0 {
				h.pause(c)
			}
			got += len(msg)
			sum.Write(msg)
			return nil
		},
		Close: func(_ *loop.Conn, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended++
			if err != io.EOF {
				fmt.Fprintf(syscallStderr{}, "after %d bytes: %v\n", got, err)
				return
			}
			h.got += got
			h.sums = append(h.sums, fmt.Sprintf("%x", sum.Sum(nil)))
		},
	}
}

func (h *hashes) pause(c *loop.Conn) {
	c.PauseRead()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauses++
	h.resting = append(h.resting, c.Ref())
}

// syscallStderr writes also if no descriptors are left.
type syscallStderr struct{}

func (syscallStderr) Write(p []byte) (int, error) { return writeFD(2, p) }

// pour sends n random bytes and closes. It returns their hash.
func pour(c net.Conn, n int) (string, error) {
	defer c.Close()
	sum := sha256.New()
	r := rand.NewChaCha8([32]byte{})
	buf := make([]byte, 256<<10)
	for sent := 0; sent < n; {
		p := buf[:min(len(buf), n-sent)]
		_, _ = r.Read(p)
		sum.Write(p)
		_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(p); err != nil {
			return "", fmt.Errorf("after %d bytes: %w", sent, err)
		}
		sent += len(p)
	}
	if t, ok := c.(*tls.Conn); ok { // unread session tickets would make the kernel reset it
		_ = t.CloseWrite()
		_ = t.SetReadDeadline(time.Now().Add(time.Minute))
		_, _ = io.Copy(io.Discard, t)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

func hashServer(t *testing.T, network string) (server *puppet, addr string) {
	t.Helper()
	if network == "unix" {
		server = startPuppet(t, "hash", "ADDR=unix://"+testkit.SocketPath(t))
	} else {
		server = startPuppet(t, "hash")
	}
	_, addr = server.address()
	return server, addr
}

// A client sends 1 GiB and closes, while the handler has paused reading. The client is stopped, the
// server's memory does not grow; when reading is resumed all arrives, in order, and then the end.
// So it is if the server has no descriptor left when it is to pause, and to resume.
func TestFaultPausedGigabyte(t *testing.T) {
	needSlow(t, "1 GiB of input, several times")
	needLinux(t)
	for _, network := range []string{"tcp", "unix"} {
		for _, exhausted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/exhausted %v", network, exhausted), func(t *testing.T) {
				pausedGigabyte(t, network, exhausted)
			})
		}
	}
}

func pausedGigabyte(t *testing.T, network string, exhausted bool) {
	server, addr := hashServer(t, network)
	before := server.memory("VmHWM")
	c, err := connect(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		sum string
		err error
	}
	if exhausted {
		testkit.Eventually(t, "the client is in", func() bool { return server.number("conns") == 1 })
		server.ask("hoard")
	}
	poured := make(chan result, 1)
	go func() {
		sum, err := pour(c, 1<<30)
		poured <- result{sum, err}
	}()
	testkit.Eventually(t, "the handler pauses", func() bool { return server.number("paused") == 1 })
	time.Sleep(500 * time.Millisecond) // time enough for a gigabyte, if nobody stopped it
	stopped := server.memory("VmHWM") - before
	server.ask("resume")
	if exhausted {
		server.ask("release")
	}
	began := time.Now()
	testkit.Eventually(t, "all has arrived", func() bool { return server.number("ended") == 1 })
	res := <-poured
	if res.err != nil {
		t.Fatal(res.err)
	}
	grown := server.memory("VmHWM") - before
	t.Logf("paused: memory grew by %.1f MiB; then 1 GiB in %v; at most %.1f MiB",
		float64(stopped)/(1<<20), time.Since(began).Round(time.Millisecond), float64(grown)/(1<<20))
	if limit := 8 << 20; stopped > limit || grown > 2*limit {
		t.Errorf("memory grew by %d and %d KiB", stopped>>10, grown>>10)
	}
	testkit.Want(t, "bytes that arrived", server.number("got"), 1<<30)
	testkit.Want(t, "their hash", server.ask("sums"), res.sum)
	server.ends()
}
