package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"runtime"
	"syscall"
)

// serveNet does what serveLoops does, with a goroutine for each connection.
func serveNet(backend string) error {
	pool := make(chan net.Conn, 64)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	fmt.Println(ln.Addr(), 0, runtime.GOMAXPROCS(0))
	for {
		c, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = answer(c, pool, backend)
		}()
	}
}

func answer(c net.Conn, pool chan net.Conn, backend string) error {
	msg := make([]byte, messageSize)
	for {
		if _, err := io.ReadFull(c, msg); err != nil {
			return err
		}
		if msg[4] == 'c' {
			if err := roundTrip(pool, backend, msg); err != nil {
				return err
			}
		}
		if _, err := c.Write(msg); err != nil {
			return err
		}
	}
}
