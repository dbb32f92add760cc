package handler_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// startRelay starts a server whose connections answer each request by the other loop, and those
// that begin with "here" by their own. The mailboxes hold 1,024.
func startRelay(t *testing.T, log io.Writer) *loop.Server {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Limits: loop.Limits{MaxMailbox: 1024}, Codec: codec.Lines{}, Logger: zerolog.New(log)}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		replies := handler.NewReplies(c, handler.RepliesConfig{})
		other := srv.Loops()[1-c.Loop().Index()]
		return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
			line := append(bytes.Clone(msg), '\n')
			if bytes.HasPrefix(line, []byte("here")) {
				_, err := c.Write(line)
				return err
			}
			return replies.RunOn(other, func([]byte) []byte { return line })
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// watchMailboxes returns the longest mailbox from now on.
func watchMailboxes(srv *loop.Server) (most func() int) {
	stop, longest := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			for _, l := range srv.Stats().Loops {
				n = max(n, l.Mailbox)
			}
			select {
			case <-stop:
				longest <- n
				return
			case <-time.After(time.Millisecond): // between two looks
			}
		}
	}()
	return func() int { close(stop); return <-longest }
}

// pipeline sends n requests without waiting, and checks that each is answered, in order.
func pipeline(t *testing.T, addr string, n int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	go func() {
		w := bufio.NewWriter(c)
		for i := range n {
			fmt.Fprintln(w, i)
		}
		_ = w.Flush()
	}()
	r := bufio.NewReader(c)
	for i := range n {
		if line, err := r.ReadString('\n'); line != fmt.Sprintln(i) {
			t.Errorf("answer %q, %v, want %d", line, err, i)
			return
		}
	}
}

// ask waits for n answers, one after the other, and returns how long each took. prefix begins each
// request.
func ask(t *testing.T, addr, prefix string, n int) (took []time.Duration) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range n {
		began := time.Now()
		request := fmt.Sprintf("%s%d\n", prefix, i)
		_, _ = io.WriteString(c, request)
		if line, err := r.ReadString('\n'); line != request {
			t.Errorf("answer %q, %v, want %q", line, err, request)
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}

func heap() int {
	runtime.GC()
	runtime.GC() // what the first one has found unused
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// 400 connections pipeline over two loops, and 40 wait for each answer: all are answered, no
// mailbox grows without end, and the memory is given back.
func TestCrowdIsAnswered(t *testing.T) {
	testkit.NeedSlow(t, "it takes half a minute of both processors")
	testkit.NeedFiles(t, 2000)
	srv := startRelay(t, io.Discard)
	addr, before := srv.LocalAddr().String(), heap()
	most := watchMailboxes(srv)
	var all sync.WaitGroup
	for range 400 {
		all.Go(func() { pipeline(t, addr, 5000) })
	}
	for range 40 {
		all.Go(func() { ask(t, addr, "", 50) })
	}
	all.Wait()
	longest := most()
	t.Logf("the longest mailbox: %d", longest)
	if longest > 20_000 {
		t.Errorf("%d functions in a mailbox, want 20,000 at most", longest)
	}
	testkit.Eventually(t, "the memory is given back", func() bool { return heap() < before+8<<20 })
}

// A connection that fills the mailbox of the other loop at most triples the p99 of clients of
// either loop that are answered by their own. To requests that cross loops it does no more than the
// same connection does when its own loop answers it. The clients are other processes: a busy Go
// program lets its goroutines wait for a processor for up to 10 ms.
func TestCrowdOfOne(t *testing.T) {
	if args := os.Getenv(crowdEnv); args != "" {
		crowdClient(t, strings.Split(args, ","))
		return
	}
	testkit.NeedSlow(t, "it measures times: the machine must be quiet")
	srv := startRelay(t, io.Discard)
	p99s := func() (here, across time.Duration) {
		out, err := crowdProcess(t, srv, "ask").Output()
		if _, scanErr := fmt.Sscanf(string(out), "p99 %d %d", &here, &across); err != nil || scanErr != nil {
			t.Fatalf("the clients: %v: %s", err, out)
		}
		return here, across
	}
	besideFlood := func(prefix string) (here, across time.Duration) {
		cmd := crowdProcess(t, srv, "flood", prefix)
		ready, err := cmd.StdoutPipe()
		if err := cmp.Or(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}()
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the flood: %v", err)
		}
		return p99s()
	}
	for round := range 5 { // a machine that was busy meanwhile gets another chance
		alone, aloneAcross := p99s()
		plain, plainAcross := besideFlood("here ")
		beside, besideAcross := besideFlood("")
		t.Logf("p99 alone %v, beside a flood of its own loop %v, of the other's mailbox %v; across loops %v, %v, %v",
			alone, plain, beside, aloneAcross, plainAcross, besideAcross)
		if beside <= 3*alone && besideAcross <= plainAcross*3/2 {
			return
		}
		if round == 4 {
			t.Errorf("beside a flood of the mailbox p99 is %v, want %v at most; across loops %v, want %v at most",
				beside, 3*alone, besideAcross, plainAcross*3/2)
		}
	}
}

const crowdEnv = "LOOPWHEEL_TEST_CROWD" // makes TestCrowdOfOne the clients of a server

// crowdProcess returns this test binary as a client of srv: see crowdClient.
func crowdProcess(t *testing.T, srv *loop.Server, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrowdOfOne$")
	cmd.Env = append(os.Environ(), crowdEnv+"="+strings.Join(append(args, srv.LocalAddr().String()), ","))
	return cmd
}

// crowdClient measures eight clients, four of each loop, or is the connection that floods.
func crowdClient(t *testing.T, args []string) {
	addr := args[len(args)-1]
	if args[0] == "flood" {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, c) }()
		fmt.Println("ready")
		for lines := []byte(strings.Repeat(args[1]+"12345\n", 1000)); err == nil; _, err = c.Write(lines) {
		}
		return
	}
	p99 := func(prefix string) time.Duration {
		var all sync.WaitGroup
		var mu sync.Mutex
		var took []time.Duration
		for range 8 {
			all.Go(func() {
				some := ask(t, addr, prefix, 500)
				mu.Lock()
				took = append(took, some...)
				mu.Unlock()
			})
		}
		all.Wait()
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	fmt.Printf("p99 %d %d\n", p99("here "), p99(""))
}

// Goroutines that Tell ten million functions as fast as they can lose none; with TellWait they take
// little memory. The log names who floods.
func TestTenMillionTells(t *testing.T) {
	testkit.NeedSlow(t, "it takes a gigabyte")
	const tellers, each = 4, 2_500_000
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprintf("TellWait %v", wait), func(t *testing.T) {
			var mu sync.Mutex
			var log bytes.Buffer
			srv := startRelay(t, writerFunc(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return log.Write(p) }))
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var ref loop.Ref
			testkit.Eventually(t, "the connection is there", func() bool {
				found := make(chan loop.Ref, 2)
				for _, l := range srv.Loops() {
					_ = l.Post(func() {
						var r loop.Ref
						for c := range l.Conns() {
							r = c.Ref()
						}
						found <- r
					})
				}
				for range 2 {
					if r := <-found; r != (loop.Ref{}) {
						ref = r
					}
				}
				return ref != loop.Ref{}
			})
			var ran atomic.Int64
			f := func(*loop.Conn) { ran.Add(1) }
			if !wait { // so that the mailbox stays full
				_ = ref.Tell(func(*loop.Conn) { time.Sleep(3 * time.Second) }) // its work
			}
			var peak uint64
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range time.Tick(20 * time.Millisecond) {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					if peak = max(peak, m.Sys); ran.Load() >= tellers*each {
						return
					}
				}
			}()
			began := time.Now()
			for range tellers {
				go func() {
					for range each {
						err := error(nil)
						if wait {
							err = ref.TellWait(context.Background(), f)
						} else {
							err = ref.Tell(f)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			<-done
			t.Logf("%d functions in %v, the process has taken %d MiB of the system", ran.Load(), time.Since(began), peak>>20)
			if got := ran.Load(); got != tellers*each {
				t.Errorf("%d functions ran, want %d", got, tellers*each)
			}
			if wait && peak > 600e6 {
				t.Errorf("%d MB were taken, want 600 at most", peak/1e6)
			}
			mu.Lock()
			defer mu.Unlock()
			if text := log.String(); !wait && !strings.Contains(text, "TestTenMillionTells") {
				t.Errorf("the log does not name who floods: %s", text)
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
