package realtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// repliesChild sends as many bytes as it is asked for, and ends as programs should when SIGTERM
// comes. "pending" says how many bytes wait for the clients outside of the system.
func repliesChild() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	srv := &loop.Server{
		Addr:     "tcp://127.0.0.1:0",
		Codec:    codec.Lines{},
		Limits:   loop.Limits{MaxOutbound: 8 << 20},
		Drain:    loop.Drain{Timeout: 90 * time.Second},
		Timeouts: loop.Timeouts{Close: 90 * time.Second}, // the readers are 10,000, and may have to wait for a processor
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				n, err := strconv.Atoi(string(msg))
				if err != nil {
					return err
				}
				_, err = c.Write(reply(n))
				return err
			})
		},
	}
	secureIfAsked(srv)
	if err := srv.Start(ctx); err != nil {
		fail(err)
	}
	fmt.Println(srv.LocalAddr().Network(), srv.LocalAddr())
	go obey(func(words []string) string {
		if words[0] == "messages" {
			return strconv.Itoa(int(srv.Stats().Messages))
		}
		pending := 0
		for _, l := range srv.Loops() {
			sum := make(chan int)
			_ = l.Post(func() {
				n := 0
				for c := range l.Conns() {
					n += c.Pending()
				}
				sum <- n
			})
			pending += <-sum
		}
		return strconv.Itoa(pending)
	})
	if err := srv.Wait(); err != nil {
		fail(err)
	}
}

func reply(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }

// readersChild has $CONNS connections to $ADDR. Each asks for a reply of $SIZE bytes, each
// hundredth for one of $LARGE, and does not read before "read". That says how many got all of it
// and then the end, and how many did not, and how many bytes that was.
func readersChild() {
	network, addr, _ := strings.Cut(os.Getenv("ADDR"), " ")
	number := func(name string) int { n, _ := strconv.Atoi(os.Getenv(name)); return n }
	n := number("CONNS")
	size := func(i int) int {
		if i%100 == 0 {
			return number("LARGE")
		}
		return number("SIZE")
	}
	conns := make([]net.Conn, n)
	var dialing sync.WaitGroup
	for k := range 50 {
		dialing.Go(func() {
			for i := k; i < n; i += 50 {
				c, err := connect(network, addr)
				if err != nil {
					fail(err)
				}
				fmt.Fprintln(c, size(i))
				conns[i] = c
			}
		})
	}
	dialing.Wait()
	fmt.Println("ready")
	obey(func([]string) string {
		var whole, cut, total atomic.Int64
		var reading sync.WaitGroup
		for i, c := range conns {
			reading.Go(func() {
				_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
				got, err := io.ReadAll(c)
				c.Close()
				total.Add(int64(len(got)))
				if err == nil && bytes.Equal(got, reply(size(i))) {
					whole.Add(1)
				} else {
					cut.Add(1)
				}
			})
		}
		reading.Wait()
		return fmt.Sprint(whole.Load(), cut.Load(), total.Load())
	})
}

// SIGTERM comes while 10,000 clients have not read their replies yet. All of them get all of it,
// and the program ends with code 0 within the drain timeout.
func TestFaultDrainLosesNothing(t *testing.T) {
	needSlow(t, "10,000 connections with a gigabyte of replies")
	const conns, size, large = 10_000, 16 << 10, 7 << 20
	testkit.NeedFiles(t, conns+200)
	server := startPuppet(t, "replies")
	network, addr := server.address()
	readers := startPuppet(t, "readers", "ADDR="+network+" "+addr,
		fmt.Sprint("CONNS=", conns), fmt.Sprint("SIZE=", size), fmt.Sprint("LARGE=", large))
	if s := readers.hear(); s != "ready" {
		t.Fatal(s)
	}
	testkit.EventuallyIn(t, 2*time.Minute, "all requests are there", func() bool { return server.number("messages") == conns })
	pending := server.number("pending")
	if pending < 100<<20 {
		t.Errorf("only %d bytes wait in the server", pending)
	}
	began := time.Now()
	if err := server.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // the drain is under way before they read
	ended := make(chan time.Duration)
	go func() {
		server.ends()
		ended <- time.Since(began)
	}()
	var whole, cut, total int64
	if _, err := fmt.Sscan(readers.ask("read"), &whole, &cut, &total); err != nil {
		t.Fatal(err)
	}
	took := <-ended
	want := int64(conns-conns/100)*size + conns/100*large
	t.Logf("%d connections, %d MiB of replies of which %d MiB waited in the server: %d bytes lost; it ended %v after SIGTERM",
		conns, want>>20, pending>>20, want-total, took.Round(time.Millisecond))
	if whole != conns || cut != 0 || total != want {
		t.Errorf("%d clients got all of it, %d did not", whole, cut)
	}
	if took > 100*time.Second {
		t.Errorf("it took %v to end", took)
	}
	readers.ends()
}
