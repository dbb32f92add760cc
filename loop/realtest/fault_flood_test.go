package realtest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// bigReply is more than the system's buffers hold.
const bigReply = 8 << 20

// fewDescriptorsChild is an echo server that may open $NOFILE descriptors, with $MAXCONNS. A line
// "big" gets a reply of that size. "hoard" opens all descriptors that are left, "release" closes
// these.
func fewDescriptorsChild() {
	n, _ := strconv.Atoi(os.Getenv("NOFILE"))
	setLimit(n)
	max, _ := strconv.Atoi(os.Getenv("MAXCONNS"))
	var hoard []int
	servePuppet(&loop.Server{
		Limits:   loop.Limits{MaxConns: max},
		NumLoops: 2,
		Timeouts: loop.Timeouts{Close: time.Minute}, // who reads slowly, on a busy machine, gets all of its reply
		Codec:    codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) (err error) {
				if string(msg) != "big" {
					return c.Send(msg)
				}
				_, err = c.Write(reply(bigReply))
				return err
			})
		},
	}, func(words []string) string {
		for _, fd := range hoard {
			closeFD(fd)
		}
		hoard = nil
		for words[0] == "hoard" {
			fd, err := dupFD(2)
			if err != nil {
				break
			}
			hoard = append(hoard, fd)
		}
		return strconv.Itoa(len(hoard))
	})
}

// A thousand clients at once against a server that may open 256 descriptors, five times. It goes
// on, those that are in do not notice, and afterwards new ones are accepted. With MaxConns above
// what is possible, the system's own errors come as well.
func TestFaultDescriptorsRunOut(t *testing.T) {
	needSlow(t, "a thousand clients, five times, against few descriptors")
	testkit.NeedFiles(t, 1300)
	for _, network := range []string{"tcp", "unix"} {
		for _, maxConns := range []int{0, 1000} {
			t.Run(fmt.Sprintf("%s/MaxConns %d", network, maxConns), func(t *testing.T) { flood(t, network, maxConns) })
		}
	}
}

// Clients that wait for large replies close one direction when the server has no descriptor left.
// They get their replies.
func TestFaultHalfOpenWithoutDescriptors(t *testing.T) {
	needSlow(t, "many megabytes of replies")
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "tcp://127.0.0.1:0"
			if network == "unix" {
				addr = "unix://" + testkit.SocketPath(t)
			}
			server := startPuppet(t, "few-descriptors", "ADDR="+addr, "NOFILE=256", "MAXCONNS=0")
			network, addr := server.address()
			const clients = 20
			var conns []net.Conn
			for range clients {
				c, err := connect(network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, _ = c.Write([]byte("big\n"))
				conns = append(conns, c)
			}
			testkit.Eventually(t, "all have asked", func() bool { return server.number("messages") == clients })
			server.ask("hoard")
			for _, c := range conns {
				if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(200 * time.Millisecond) // the server has seen the ends before they read
			for _, c := range conns {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				if n, err := io.Copy(io.Discard, c); n != bigReply || err != nil {
					t.Errorf("got %d bytes, %v", n, err)
				}
			}
			server.ask("release")
			server.ends()
		})
	}
}

func flood(t *testing.T, network string, maxConns int) {
	addr := "tcp://127.0.0.1:0"
	if network == "unix" {
		addr = "unix://" + testkit.SocketPath(t)
	}
	server := startPuppet(t, "few-descriptors", "ADDR="+addr, "NOFILE=256", fmt.Sprint("MAXCONNS=", maxConns))
	network, addr = server.address()
	residents := echoers(t, network, addr, 50, 20*time.Millisecond)
	for round := range 5 {
		patience := 30 * time.Second // to be served or refused, by a machine that stands still at times
		if maxConns > 0 && !overTLS() {
			patience = 3 * time.Second // some wait until the others have gone
		}
		in, refused, waiting := crowd(t, network, addr, 1000, patience)
		t.Logf("round %d: %d in, %d refused, %d in the system's queue", round, in, refused, waiting)
		if in < 50 || in > 256 {
			t.Errorf("%d got in", in)
		}
		if maxConns == 0 && waiting > 0 {
			t.Errorf("%d were neither served nor refused", waiting)
		}
		testkit.Eventually(t, "the crowd has gone", func() bool { return server.number("conns") <= 50 })
		var c net.Conn
		testkit.Eventually(t, "a new client is served", func() bool {
			var err error
			if c, err = connect(network, addr); err == nil {
				_, err = roundTrip(c)
				c.Close()
			}
			return err == nil
		})
	}
	if l := residents.report(); l.trips == 0 {
		t.Error("the residents did nothing")
	} else {
		t.Logf("meanwhile 50 residents: %v", l)
	}
	if n := server.number("panics"); n != 0 {
		t.Errorf("%d panics", n)
	}
	residents.ends()
	server.ends()
}

// crowd connects n clients at once, each of which wants one echo and then stays until all know what
// became of them. Who has no answer after patience is in the system's queue.
func crowd(t *testing.T, network, addr string, n int, patience time.Duration) (in, refused, waiting int64) {
	var served, failed, unanswered atomic.Int64
	var decided, gone sync.WaitGroup
	leave := make(chan struct{})
	decided.Add(n)
	for range n {
		gone.Go(func() {
			c, err := connect(network, addr)
			if err != nil {
				failed.Add(1)
				decided.Done()
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			var timeout net.Error
			switch err := oneEcho(c); {
			case err == nil:
				served.Add(1)
			case errors.As(err, &timeout) && timeout.Timeout():
				unanswered.Add(1)
			default:
				failed.Add(1)
			}
			decided.Done()
			<-leave
		})
	}
	decided.Wait()
	close(leave)
	gone.Wait()
	return served.Load(), failed.Load(), unanswered.Load()
}

func oneEcho(c net.Conn) error {
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	var got [6]byte
	_, err := c.Read(got[:])
	return err
}
