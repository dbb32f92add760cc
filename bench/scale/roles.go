package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	ping = "ping"
	pong = "pong"
	said = "sixty-three bytes that somebody says to somebody else on a line"
)

// beServer prints its address, and for each line of input a reading; "gc" collects all garbage
// before.
func beServer(heartbeat time.Duration) error {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Lines{}, IdleTimeout: 3 * heartbeat,
		Accept: handler.Chain(func(*loop.Conn) loop.Handler { return loop.HandlerFunc(answer) },
			handler.Heartbeat{Interval: heartbeat, Message: []byte(ping)}),
	}
	if err := srv.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(srv.LocalAddr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "gc" {
			runtime.GC()
			debug.FreeOSMemory()
		}
		if err := json.NewEncoder(os.Stdout).Encode(readingOf(srv)); err != nil {
			return err
		}
	}
	return nil
}

// answer echoes, but for answers to pings.
func answer(c *loop.Conn, line []byte) error {
	if string(line) == pong {
		return nil
	}
	return c.Send(line)
}

func readingOf(srv *loop.Server) reading {
	var pages, resident int
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(statm), &pages, &resident)
	}
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	st := srv.Stats()
	return reading{
		Resident: resident * os.Getpagesize(),
		CPU:      time.Duration(used.Utime.Nano() + used.Stime.Nano()),
		Events:   st.Messages + st.Fired,
		Conns:    st.Conns,
		Turn:     st.Turn,
		Lag:      st.Lag,
	}
}

// beClients opens the connections, says so, and answers for them until the input ends.
func beClients(addr string, n int) error {
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return fmt.Errorf("connection %d: %w (see ulimit -n)", i+1, err)
		}
		_ = c.(*net.TCPConn).SetLinger(0) // no port has to wait afterwards
		go answerPings(c)
		if i%100 == 0 {
			go talk(c)
		}
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// answerPings knows a ping by its length.
func answerPings(c net.Conn) {
	for line := make([]byte, 256); ; {
		n, err := c.Read(line)
		if err != nil {
			return
		}
		if n == len(ping)+1 {
			_, _ = io.WriteString(c, pong+"\n")
		}
	}
}

// talk says something each second.
func talk(c net.Conn) {
	time.Sleep(rand.N(time.Second))
	for range time.Tick(time.Second) {
		if _, err := io.WriteString(c, said+"\n"); err != nil {
			return
		}
	}
}
