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

const (
	callConns, callDepth, callTotal = 8, 64, 400_000
)

// callsClient asks over 8 connections, 64 questions under way on each, each with a deadline.
func callsClient() {
	askers(func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error {
		calls := handler.NewCalls[[]byte](c, handler.CallLimits{})
		frame := make([]byte, 64)
		var next func()
		answered := func(_ []byte, err error) {
			if err == nil { // otherwise the round is over
				done()
				next()
			}
		}
		next = func() {
			id, err := calls.Begin(10*time.Second, answered)
			if err != nil {
				return
			}
			binary.BigEndian.PutUint64(frame, id)
			_ = c.Send(frame)
		}
		for range callDepth {
			next()
		}
		return func(_ *loop.Conn, msg []byte) error {
			calls.Answer(binary.BigEndian.Uint64(msg), msg)
			return nil
		}
	})
}

// echoesClient does the same without calls: each answer makes it send one more.
func echoesClient() {
	askers(func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error {
		frame := make([]byte, 64)
		for range callDepth {
			_ = c.Send(frame)
		}
		return func(c *loop.Conn, _ []byte) error {
			done()
			return c.Send(frame)
		}
	})
}

func askers(open func(c *loop.Conn, done func()) func(c *loop.Conn, msg []byte) error) {
	srv := &loop.Server{NumLoops: 1}
	check(srv.Start(context.Background()))
	rounds(func(port string) {
		over := make(chan struct{})
		left := callTotal
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

func benchCalls() {
	echo := start("tcp-echo")
	defer echo.stop()
	_, port, _ := net.SplitHostPort(echo.addr)
	compare("a call of 64 bytes", []string{"echoes", "calls"}, func(name string) float64 {
		p := start(name)
		defer p.stop()
		begun := p.cpu()
		fmt.Fprintln(p.in.(io.Writer), port)
		_ = must(p.out.Read(make([]byte, 10)))
		return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / callTotal
	})
}
