package realtest_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

func init() { children["budget"] = budgetChild }

// budgetChild is a server with default settings: it echoes lines, and pushes without end to who
// says "push".
func budgetChild() {
	engine, _ := strconv.Atoi(os.Getenv("ENGINE"))
	srv := &loop.Server{Codec: codec.Lines{}, Engine: loop.Engine(engine)}
	srv.Accept = func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			if string(line) != "push" {
				return c.Send(line)
			}
			c.Every(20*time.Millisecond, func() { _, _ = c.Write(piece[:16<<10]) })
			return nil
		})
	}
	servePuppet(srv, func([]string) string {
		st := srv.Stats()
		return fmt.Sprintf("%d connections, %d refused, %d closed for memory, %d of %d bytes are buffered",
			st.Conns, st.Refused, st.ClosedBy["memory"], st.Buffered, srv.Limits.MaxBuffered)
	})
}

// A cage is a memory cgroup of its own.
type cage struct {
	dir string
	v2  bool
}

// newCage skips the test where no cgroup can be made.
func newCage(t *testing.T, limit int) cage {
	t.Helper()
	c := cage{dir: "/sys/fs/cgroup", v2: true}
	if _, err := os.Stat(c.dir + "/cgroup.controllers"); err != nil {
		c = cage{dir: "/sys/fs/cgroup/memory"}
	}
	c.dir = filepath.Join(c.dir, fmt.Sprintf("loopwheel-test-%d", os.Getpid()))
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() { testkit.Eventually(t, "the cgroup is empty", func() bool { return os.Remove(c.dir) == nil }) })
	files := []string{"memory.max", "memory.swap.max"}
	if !c.v2 {
		files = []string{"memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	}
	for i, file := range files {
		value := limit
		if file == "memory.swap.max" {
			value = 0
		}
		err := os.WriteFile(filepath.Join(c.dir, file), []byte(strconv.Itoa(value)), 0)
		if i == 0 && err != nil {
			t.Skipf("no limit can be set here: %v", err)
		}
	}
	return c
}

// kills returns how many processes the kernel has killed for want of memory.
func (c cage) kills() int {
	if c.v2 {
		return c.number("memory.events", "oom_kill")
	}
	return c.number("memory.oom_control", "oom_kill")
}

// taken returns how many bytes the cgroup takes without files, and how many version 1 counts apart
// for TCP.
func (c cage) taken() (all, tcp int) {
	if c.v2 {
		return c.number("memory.current", "") - c.number("memory.stat", "file"), 0
	}
	return c.number("memory.usage_in_bytes", "") - c.number("memory.stat", "cache"), c.number("memory.kmem.tcp.usage_in_bytes", "")
}

// number returns what a line of a file of the cgroup says.
func (c cage) number(file, name string) int {
	b, _ := os.ReadFile(filepath.Join(c.dir, file))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); name == "" || f[0] == name {
			n, _ := strconv.Atoi(f[len(f)-1])
			return n
		}
	}
	return -1
}

// A mob are clients that do no good. They come again a second after they are closed.
type mob struct {
	name string
	n    int
	act  func(c net.Conn)
}

var twoByteLines = bytes.Repeat([]byte("x\n"), 32<<10)

var mobs = []mob{
	{"idle", 18_000, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }},
	{"flood", 500, func(c net.Conn) {
		go func() {
			for {
				if _, err := c.Write(twoByteLines); err != nil {
					return
				}
			}
		}()
		for b := make([]byte, 16<<10); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}},
	{"slow readers", 500, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(8 << 10)
		_, _ = c.Write([]byte("push\n"))
		go func() {
			line := append(bytes.Repeat([]byte("y"), 1000), '\n')
			for {
				if _, err := c.Write(line); err != nil {
					return
				}
			}
		}()
		for b := make([]byte, 1<<10); ; time.Sleep(100 * time.Millisecond) { // a slow reader
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}},
	{"incomplete", 2000, func(c net.Conn) {
		_, _ = c.Write(make([]byte, 60_000))
		_, _ = c.Read(make([]byte, 1))
	}},
}

// In a container of 64 MiB, with default settings, no crowd gets the server killed, and clients that
// behave well hardly notice; nor do they if all crowds come at once to one of 128 MiB.
func TestBudgetInContainer(t *testing.T) {
	testkit.NeedSlow(t, "it fills a container")
	testkit.NeedFiles(t, 19_000)
	for name, engine := range map[string]loop.Engine{"default": loop.EngineDefault, "epoll": loop.EngineEpoll} {
		for _, m := range mobs {
			t.Run(name+"/"+m.name, func(t *testing.T) { contained(t, engine, 64<<20, m) })
		}
		t.Run(name+"/all", func(t *testing.T) { contained(t, engine, 128<<20, mobs...) })
	}
}

// contained has crowds attack a server in a cgroup, beside 50 clients that behave well.
func contained(t *testing.T, engine loop.Engine, limit int, crowds ...mob) {
	cage := newCage(t, limit)
	cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$CAGE/cgroup.procs" && exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "CAGE="+cage.dir, childEnv+"=budget", fmt.Sprint("ENGINE=", int(engine)))
	server := startPuppetCommand(t, cmd)
	network, addr := server.address()
	friends := echoers(t, network, addr, 50, 50*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	for _, m := range crowds {
		for i := range m.n {
			others.Go(func() { m.attack(ctx, network, addr, 2*time.Second*time.Duration(i)/time.Duration(m.n)) })
		}
	}
	var most, tcp int
	inTime(t, 200*time.Millisecond, func() time.Duration {
		friends.ask("reset")
		tick := time.Tick(50 * time.Millisecond)
		for began := time.Now(); time.Since(began) < 8*time.Second; <-tick {
			now, now2 := cage.taken()
			most, tcp = max(most, now), max(tcp, now2)
		}
		testkit.Want(t, "kills", cage.kills(), 0)
		l := friends.report()
		t.Logf("%v; at most %d MiB and %d MiB of TCP; %s", l, most>>20, tcp>>20, server.ask("numbers"))
		return l.p99
	})
}

// attack is the life of one of them.
func (m mob) attack(ctx context.Context, network, addr string, pause time.Duration) {
	for ; ; pause = time.Second {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		c, err := net.Dial(network, addr)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { c.Close() })
		m.act(c)
		stop()
		c.Close()
	}
}
