package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// serveBackend echoes, as a database that answers at once would.
func serveBackend() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(c, c) }()
	}
}

// serveLoops echoes messages that begin with an e, and sends others to the backend and back.
func serveLoops(loops, backend string) error {
	n, err := strconv.Atoi(loops)
	if err != nil {
		return err
	}
	pool := make(chan net.Conn, 64)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	srv := &loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		Codec:       codec.Length{},
		NumLoops:    n,
		IdleTimeout: time.Minute,
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if msg[0] == 'e' {
					return c.Send(msg)
				}
				req := slices.Clone(msg)
				return loop.Offload(c, func(context.Context) error { return roundTrip(pool, backend, req) },
					func(c *loop.Conn, err error) {
						if err != nil {
							c.CloseWithError(err)
							return
						}
						_ = c.Send(req)
					})
			})
		},
	}
	if err := srv.Start(ctx); err != nil {
		return err
	}
	fmt.Println(srv.LocalAddr(), len(srv.Loops()), runtime.GOMAXPROCS(0))
	return srv.Wait()
}

// roundTrip uses a connection of the pool, or a new one.
func roundTrip(pool chan net.Conn, backend string, req []byte) error {
	var c net.Conn
	select {
	case c = <-pool:
	default:
		var err error
		if c, err = net.Dial("tcp", backend); err != nil {
			return err
		}
	}
	if _, err := c.Write(req); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, req); err != nil {
		return err
	}
	select {
	case pool <- c:
		return nil
	default:
		return c.Close()
	}
}
