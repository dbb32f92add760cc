package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A callLoad is how much is asked, over 8 connections. Each asks depth questions at once, and the
// next as many when all have come that are answered: so the pieces that are read and written are
// the same for all contenders. If each answer were followed by one more question, a piece that was
// once divided, by whatever kept a process waiting, would stay so for ever.
type callLoad struct {
	depth, total int
	timeout      time.Duration
	thirds       bool // each third is never answered
}

const callConns = 8

var (
	oneByOne    = callLoad{1, 200_000, 10 * time.Second, false}
	allAnswered = callLoad{64, 1_000_000, 10 * time.Second, false}
	twoThirds   = callLoad{64, 1_000_000, 50 * time.Millisecond, true}
)

// answered is how many of depth questions are answered, if begun came before them.
func (k callLoad) answered(begun int) int {
	if !k.thirds {
		return k.depth
	}
	return k.depth - ((begun+k.depth)/3 - begun/3)
}

// asks calls send depth times now, and again whenever answer was called for each answer, until all
// connections together have no more to ask. It returns how many questions got none since the last
// time.
func (k callLoad) asks(more *int, send func()) (answer func() (unanswered int)) {
	begun, left := 0, 0
	next := func() {
		if *more < k.depth {
			return
		}
		*more -= k.depth
		left = k.answered(begun)
		begun += k.depth
		for range k.depth {
			send()
		}
	}
	next()
	return func() int {
		if left--; left > 0 {
			return 0
		}
		unanswered := k.depth - k.answered(begun-k.depth)
		next()
		return unanswered
	}
}

// calls asks questions that have a deadline each.
func (k callLoad) calls() {
	k.ask(func(c *loop.Conn, more *int, done func(n int)) func(c *loop.Conn, msg []byte) error {
		calls := handler.NewCalls[[]byte](c, handler.CallLimits{})
		frame := make([]byte, 64)
		ended := func([]byte, error) { done(1) }
		answer := k.asks(more, func() {
			id, err := calls.Begin(k.timeout, ended)
			if err != nil {
				return
			}
			binary.BigEndian.PutUint64(frame, id)
			_ = c.Send(frame)
		})
		return func(_ *loop.Conn, msg []byte) error {
			calls.Answer(binary.BigEndian.Uint64(msg), msg)
			answer()
			return nil
		}
	})
}

// echoes sends and receives the same, and remembers nothing of it.
func (k callLoad) echoes() {
	k.ask(func(c *loop.Conn, more *int, done func(n int)) func(c *loop.Conn, msg []byte) error {
		frame := make([]byte, 64)
		answer := k.asks(more, func() { _ = c.Send(frame) })
		return func(*loop.Conn, []byte) error {
			done(1 + answer())
			return nil
		}
	})
}

func (k callLoad) ask(open func(c *loop.Conn, more *int, done func(n int)) func(c *loop.Conn, msg []byte) error) {
	srv := &loop.Server{NumLoops: 1}
	check(srv.Start(context.Background()))
	rounds(func(port string) {
		over := make(chan struct{})
		left, more := k.total, k.total
		var conns []*loop.Conn
		done := func(n int) {
			if left -= n; left == 0 {
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
				return ended{loop.HandlerFunc(open(c, &more, done))}
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
		defer p.beside(to.cmd.Process.Pid)()
		begun := p.cpu()
		fmt.Fprintln(p.in.(io.Writer), port)
		_ = must(p.out.Read(make([]byte, 10)))
		return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / float64(total)
	}
	compare("calls of 64 bytes, one by one", []string{"echoes-1", "calls-1"}, func(name string) float64 {
		return one(name, echo, oneByOne.total)
	})
	compare("calls of 64 bytes, 64 at once", []string{"echoes", "calls"}, func(name string) float64 {
		return one(name, all, allAnswered.total)
	})
	// Per question asked. Fewer answers are read, which makes up for the calls that time out: so not
	// only beside plain echoes, but beside the same traffic without calls, too.
	took := compare("the same, a third unanswered", []string{"echoes", "echoes-thirds", "calls-thirds"}, func(name string) float64 {
		if name == "echoes" {
			return one(name, all, allAnswered.total)
		}
		return one(name, thirds, twoThirds.total)
	})
	if calls, same := took["calls-thirds"], took["echoes-thirds"]; calls != nil && same != nil {
		fmt.Printf("%-34s %-22s %.2f of echoes-thirds\n", "", "calls-thirds", calls.median()/same.median())
	}
}
