package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A callLoad is how much is asked, over 8 connections.
type callLoad struct {
	depth, total int // questions under way on each that will be answered, and all together
	timeout      time.Duration
	thirds       bool // each third is never answered
}

const callConns = 8

var (
	allAnswered = callLoad{64, 400_000, 10 * time.Second, false}
	twoThirds   = callLoad{64, 1_000_000, 50 * time.Millisecond, true}
)

// calls asks questions that have a deadline each.
func (k callLoad) calls() {
	k.ask(func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error {
		calls := handler.NewCalls[[]byte](c, handler.CallLimits{})
		frame := make([]byte, 64)
		var next func()
		ended := func(_ []byte, err error) {
			if err == nil || errors.Is(err, handler.ErrCallTimeout) { // otherwise the round is over
				done()
			}
		}
		next = func() {
			id, err := calls.Begin(k.timeout, ended)
			if err != nil {
				return
			}
			binary.BigEndian.PutUint64(frame, id)
			_ = c.Send(frame)
		}
		for range k.depth {
			next()
		}
		answers := 0
		return func(_ *loop.Conn, msg []byte) error {
			calls.Answer(binary.BigEndian.Uint64(msg), msg)
			next()
			if answers++; k.thirds && answers%2 == 0 {
				next() // in place of the one that is not answered
			}
			return nil
		}
	})
}

// traffic sends and receives what calls does, and remembers nothing of it.
func (k callLoad) traffic() {
	k.ask(func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error {
		frame := make([]byte, 64)
		for range k.depth {
			_ = c.Send(frame)
		}
		answers := 0
		return func(c *loop.Conn, _ []byte) error {
			done()
			if answers++; k.thirds && answers%2 == 0 {
				done()
				_ = c.Send(frame)
			}
			return c.Send(frame)
		}
	})
}

// echoes does the same without calls: each answer makes it send one more.
func (k callLoad) echoes() {
	k.ask(func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error {
		frame := make([]byte, 64)
		for range k.depth {
			_ = c.Send(frame)
		}
		return func(c *loop.Conn, _ []byte) error {
			done()
			return c.Send(frame)
		}
	})
}

func (k callLoad) ask(open func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error) {
	srv := &loop.Server{NumLoops: 1}
	check(srv.Start(context.Background()))
	rounds(func(port string) {
		over := make(chan struct{})
		left := k.total
		var conns []*loop.Conn
		done := func() {
			if left--; left == 0 {
				for _, c := range conns {
					c.CloseWithError(io.EOF)
				}
				close(over)
			}
		}
		for range callConns {
			d := loop.Dialer{Codec: codec.Fixed{Size: 64}}
			d.Dial(srv.Loops()[0], "tcp://127.0.0.1:"+port, func(c *loop.Conn, err error) loop.Handler {
				check(err)
				conns = append(conns, c)
				return ended{loop.HandlerFunc(open(c, done))}
			})
		}
		<-over
	})
}

type ended struct{ loop.HandlerFunc }

func tcpFrames() { frames(func(int) bool { return true }) }
func tcpThirds() { frames(func(n int) bool { return n%3 != 0 }) }

// frames is an echo of those frames of 64 bytes that are answered.
func frames(answered func(n int) bool) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Fixed{Size: 64}, Accept: func(*loop.Conn) loop.Handler {
		n := 0
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if n++; !answered(n) {
				return nil
			}
			return c.Send(msg)
		})
	}}
	check(srv.Start(context.Background()))
	fmt.Println(srv.LocalAddr())
	untilInputEnds()
}

// benchCalls compares calls with echoes, all of them answered, and with a third that is not.
func benchCalls() {
	echo, all, thirds := start("tcp-echo"), start("tcp-frames"), start("tcp-thirds")
	defer echo.stop()
	defer all.stop()
	defer thirds.stop()
	one := func(name string, to *process, total int) float64 {
		_, port, _ := net.SplitHostPort(to.addr)
		p := start(name)
		defer p.stop()
		begun := p.cpu()
		fmt.Fprintln(p.in.(io.Writer), port)
		_ = must(p.out.Read(make([]byte, 10)))
		return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / float64(total)
	}
	compare("a call of 64 bytes", []string{"echoes", "calls"}, func(name string) float64 {
		return one(name, echo, allAnswered.total)
	})
	// A server that answers less than it is asked waits for a client that remembers, and what it costs
	// to wake it is the client's. So there is one, too, that has the same traffic and remembers nothing.
	compare("a call, a third unanswered", []string{"echoes-thirds", "traffic-thirds", "calls-thirds"}, func(name string) float64 {
		if name == "echoes-thirds" {
			return one(name, all, twoThirds.total)
		}
		return one(name, thirds, twoThirds.total)
	})
}
