package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// echoer is the handler of loopwheel's server, which has the idle timeout and the length codec on.
type echoer struct{}

func (echoer) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (echoer) OnClose(*loop.Conn, error)                { quit() }

func serveLoopwheel() error {
	return runLoopwheel(&loop.Server{
		Codec:       codec.Length{},
		Accept:      func(*loop.Conn) loop.Handler { return echoer{} },
		IdleTimeout: idleTimeout,
	})
}

// serveGuarded is the same with everything on that a server on the internet wants.
func serveGuarded() error {
	return runLoopwheel(&loop.Server{
		Codec:            codec.Length{},
		IdleTimeout:      idleTimeout,
		IdleJitter:       idleTimeout / 10,
		FirstByteTimeout: idleTimeout,
		FrameTimeout:     idleTimeout,
		MaxConnsPerIP:    1000,
		AcceptRate:       10_000,
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.WriteStalled, idleTimeout, func(int) { c.Close() })
			c.OnHighWater(1<<19, c.PauseRead)
			c.OnFlushed(c.ResumeRead)
			return echoer{}
		},
	})
}

func runLoopwheel(srv *loop.Server) error {
	srv.Addr = "tcp://127.0.0.1:0"
	if err := srv.Start(context.Background()); err != nil {
		return err
	}
	listening(srv.LocalAddr().String())
	return srv.Wait()
}

// gnetServer finds the frames by hand, as gnet's users do. It has no timeout.
type gnetServer struct {
	gnet.BuiltinEventEngine
}

func (*gnetServer) OnTraffic(c gnet.Conn) gnet.Action {
	for c.InboundBuffered() >= header {
		head, _ := c.Peek(header)
		n := header + int(binary.BigEndian.Uint32(head))
		if c.InboundBuffered() < n {
			break
		}
		frame, _ := c.Peek(n)
		_, _ = c.Write(frame)
		_, _ = c.Discard(n)
	}
	return gnet.None
}

func (*gnetServer) OnClose(gnet.Conn, error) gnet.Action {
	quit()
	return gnet.None
}

func serveGnet() error { return runGnet(&gnetServer{}) }

// wholeServer writes all frames that are whole in one piece, as they came: what is quickest if a
// client sends several at once, and if nothing is to be done with them.
type wholeServer struct{ gnetServer }

func (*wholeServer) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	whole := 0
	for len(in)-whole >= header {
		n := header + int(binary.BigEndian.Uint32(in[whole:]))
		if len(in)-whole < n {
			break
		}
		whole += n
	}
	if whole > 0 {
		_, _ = c.Write(in[:whole])
		_, _ = c.Discard(whole)
	}
	return gnet.None
}

func serveGnetWhole() error { return runGnet(&wholeServer{}) }

// scanServer is what gnet's users build by hand: a table of last activities behind a mutex, which
// OnTick walks through, as that runs on a goroutine of its own.
type scanServer struct {
	gnetServer
	mu   sync.Mutex
	last map[gnet.Conn]time.Time
}

func (s *scanServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	s.touch(c)
	return nil, gnet.None
}

func (s *scanServer) OnTraffic(c gnet.Conn) gnet.Action {
	s.touch(c)
	return s.gnetServer.OnTraffic(c)
}

func (s *scanServer) touch(c gnet.Conn) {
	s.mu.Lock()
	s.last[c] = time.Now()
	s.mu.Unlock()
}

func (s *scanServer) OnClose(c gnet.Conn, err error) gnet.Action {
	s.mu.Lock()
	delete(s.last, c)
	s.mu.Unlock()
	return s.gnetServer.OnClose(c, err)
}

func (s *scanServer) OnTick() (time.Duration, gnet.Action) {
	s.mu.Lock()
	for c, last := range s.last {
		if time.Since(last) > idleTimeout {
			_ = c.Close()
		}
	}
	s.mu.Unlock()
	return time.Second, gnet.None
}

func serveGnetScan() error {
	return runGnet(&scanServer{last: map[gnet.Conn]time.Time{}}, gnet.WithTicker(true))
}

func runGnet(h gnet.EventHandler, opts ...gnet.Option) error {
	// gnet does not tell which port it got for ":0", so a free one is looked for.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return err
	}
	return gnet.Run(booted{h, addr}, "tcp://"+addr, append(opts, gnet.WithLogger(silent{}))...)
}

// silent is a logger for gnet, which otherwise prints to the standard output.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// booted says when a gnet server listens.
type booted struct {
	gnet.EventHandler
	addr string
}

func (b booted) OnBoot(gnet.Engine) gnet.Action {
	listening(b.addr)
	return gnet.None
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline set before each read.
func serveNet() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	listening(ln.Addr().String())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer quit()
			echoNet(c)
		}()
	}
}

func echoNet(c net.Conn) {
	in := bufio.NewReader(c)
	var frame []byte
	for {
		if err := c.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return
		}
		head, err := in.Peek(header)
		if err != nil {
			return
		}
		n := header + int(binary.BigEndian.Uint32(head))
		frame = slices.Grow(frame[:0], n)[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		if _, err := c.Write(frame); err != nil {
			return
		}
	}
}
