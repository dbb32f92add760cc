package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// far: an echo server whose process works on tasks of a Redis that is 200 ms away, delivered onto
// its loops. Round trips to Redis must not be felt by those who are echoed.
func far(r *redisServer, _ settings, out *results) error {
	if err := r.flush(); err != nil {
		return err
	}
	addr, closed, err := distant(r.addr, 100*time.Millisecond)
	if err != nil {
		return err
	}
	defer closed()
	ctx, cancel := context.WithCancel(context.Background())
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
	}}
	if err := srv.Start(ctx); err != nil {
		cancel()
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	q, err := rediswheel.Open(ctx, client, rediswheel.Config{})
	if err != nil {
		cancel()
		return err
	}
	done := make(chan struct{}, 1<<16)
	l := srv.Loops()[0]
	var working sync.WaitGroup
	working.Go(func() {
		_ = q.Run(ctx, rediswheel.Posted(l.Post, func(rediswheel.Task) error {
			done <- struct{}{}
			return nil
		}))
	})
	working.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = q.Add(ctx, rediswheel.Task{Key: strconv.Itoa(i)})
		}
	})
	p50, p99, err := echoes(srv.LocalAddr().String(), 10*time.Second)
	cancel()
	working.Wait()
	_ = srv.Wait()
	out.add("Redis 200 ms away: tasks done", "rediswheel", float64(len(done)))
	out.add("Redis 200 ms away: p50 of an echo, ms", "rediswheel", p50)
	out.add("Redis 200 ms away: p99 of an echo, ms", "rediswheel", p99)
	return err
}

// echoes sends a line per millisecond and returns how long they took to come back.
func echoes(addr string, for_ time.Duration) (p50, p99 float64, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	var took []float64
	for began := time.Now(); time.Since(began) < for_; time.Sleep(time.Millisecond) {
		sent := time.Now()
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return 0, 0, err
		}
		if _, err := in.ReadString('\n'); err != nil {
			return 0, 0, err
		}
		took = append(took, float64(time.Since(sent))/float64(time.Millisecond))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}

// distant returns an address that leads to another, with a delay each way.
func distant(to string, delay time.Duration) (addr string, closed func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			go carry(a, b, delay)
			go carry(b, a, delay)
		}
	}()
	return ln.Addr().String(), func() { ln.Close() }, nil
}

// carry copies what comes in, each piece as much later.
func carry(from, to net.Conn, delay time.Duration) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<12)
	go func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.data); err != nil {
				from.Close()
			}
		}
	}()
	defer close(pieces)
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{time.Now().Add(delay), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}
