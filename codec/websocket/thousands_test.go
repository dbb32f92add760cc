package websocket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/filelimit"
	"github.com/loopwheel/loopwheel/internal/stalls"
	"github.com/loopwheel/loopwheel/loop"
)

// crowdEnv makes the test binary be a crowd of clients, in place of the tests: its value is the
// address of the server.
const crowdEnv = "LOOPWHEEL_TEST_CROWD"

const (
	silentOnes, faithfulOnes = 5000, 5000

	heartbeat = time.Second
	missed    = 2
	deadAfter = (missed + 1) * heartbeat // T: from the last byte to the kick
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(crowdEnv); addr != "" {
		crowd(addr)
		return
	}
	os.Exit(m.Run())
}

// crowd opens connections, of which some answer pings and the others nothing, until the input ends.
func crowd(addr string) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	conns := make([]net.Conn, silentOnes+faithfulOnes) // what nothing refers to is closed by the garbage collector
	for i := range silentOnes + faithfulOnes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			conn, br, err := enter(addr, i%2 == 0)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			conns[i] = conn
			if i%2 == 0 {
				go answerPings(conn, br)
			}
		})
	}
	wg.Wait()
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns)
}

// enter opens a connection whose request, the last that a silent one sends, says when it was sent.
func enter(addr string, faithful bool) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	path := "/silent"
	if faithful {
		path = "/faithful"
	}
	u := &url.URL{Scheme: "ws", Host: addr, Path: path, RawQuery: fmt.Sprintf("sent=%d", time.Now().UnixNano())}
	br, _, err := ws.Dialer{}.Upgrade(conn, u)
	return conn, br, err
}

func answerPings(conn net.Conn, br *bufio.Reader) {
	var in io.Reader = conn
	if br != nil {
		in = io.MultiReader(br, conn)
	}
	for {
		f, err := ws.ReadFrame(in)
		if err != nil {
			return
		}
		if f.Header.OpCode == ws.OpPing {
			_ = wsutil.WriteClientMessage(conn, ws.OpPong, f.Payload)
		}
	}
}

// census is who was kicked, and when.
type census struct {
	opened atomic.Int64
	wrong  atomic.Int64 // a faithful one was closed, or a silent one for another reason
	mu     sync.Mutex
	early  time.Duration  // the most before T from their last byte
	kicked [][2]time.Time // of the silent ones, when they were opened and closed
}

// resident is the handler of one of them.
type resident struct {
	census   *census
	faithful bool
	sent     time.Time // its last byte, by the clock of the client
	opened   time.Time
}

func (r *resident) OnMessage(*loop.Conn, []byte) error { return nil }

func (r *resident) OnClose(_ *loop.Conn, err error) {
	switch {
	case r.faithful || !errors.Is(err, handler.ErrHeartbeat):
		r.census.wrong.Add(1)
	default:
		r.census.mu.Lock()
		defer r.census.mu.Unlock()
		r.census.kicked = append(r.census.kicked, [2]time.Time{r.opened, time.Now()})
		r.census.early = max(r.census.early, deadAfter-time.Since(r.sent))
	}
}

func (n *census) accept(c *loop.Conn) loop.Handler {
	r := &resident{census: n}
	websocket.Of(c).OnOpen = func(req *http.Request) error {
		sent, err := strconv.ParseInt(req.URL.Query().Get("sent"), 10, 64)
		if err != nil {
			return err
		}
		r.faithful, r.sent, r.opened = req.URL.Path == "/faithful", time.Unix(0, sent), time.Now()
		n.opened.Add(1)
		return nil
	}
	return r
}

// 5,000 that are silent are kicked T after their last byte, and 5,000 that answer pings stay for 10
// T.
func TestThousandsOfHeartbeats(t *testing.T) {
	needSlow(t, "10,000 connections for half a minute")
	filelimit.Need(t, 10_400)
	const tries = 3 // lateness is the machine's, too; kicking early, or one that answers, is never forgiven
	for try := 1; ; try++ {
		late := heartbeats(t)
		slices.Sort(late)
		t.Logf("kicked after T by: median %v, p99 %v, worst %v", late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
		if late[len(late)-1] <= 200*time.Millisecond {
			return
		}
		if try == tries {
			t.Fatal("want at most 200 ms")
		}
	}
}

func heartbeats(t *testing.T) (late []time.Duration) {
	var n census
	machine := stalls.Begin()
	defer machine.End()
	beat := handler.Heartbeat{
		Interval: heartbeat, Missed: missed,
		Ping: func(c *loop.Conn) error { return websocket.Ping(c, nil) },
	}
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: &websocket.Codec{}, Accept: handler.Chain(n.accept, beat)}
	ctx, cancel := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	end := startCrowd(t, srv.LocalAddr().String())
	waitFor(t, "all are connected", func() bool { return n.opened.Load() == silentOnes+faithfulOnes })
	time.Sleep(10 * deadAfter) // what is measured is that nothing happens
	stats, wrong := srv.Stats(), n.wrong.Load()
	end()
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
	if wrong != 0 || len(n.kicked) != silentOnes || stats.Conns != faithfulOnes {
		t.Fatalf("after 10 T: %d kicked, %d connected, %d closed wrongly", len(n.kicked), stats.Conns, wrong)
	}
	if n.early > 0 {
		t.Fatalf("kicked %v early", n.early)
	}
	for _, k := range n.kicked {
		late = append(late, k[1].Sub(k[0])-machine.Within(k[0], k[1])-deadAfter)
	}
	return late
}

// waitFor waits: 10,000 handshakes take a slow machine long.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startCrowd runs crowd in a process of its own, as one process may not have so many descriptors.
func startCrowd(t *testing.T, addr string) (end func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crowdEnv+"="+addr)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
}
