//go:build linux

package main

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"
	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// echoPeers are compared message by message. All but loopwheel and Netty find the frames by hand,
// and write all that are whole back in one piece: no server that does something with its messages
// could be quicker. The loop on epoll in C is the floor: what a framework adds is the difference to
// it. Netty is what one would take instead of Go.
var echoPeers = []peer{
	{name: "loopwheel", title: "EngineGnet", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineGnet) }},
	{name: "loopwheel-epoll", title: "EngineEpoll", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineEpoll) }},
	{name: "gnet", title: "gnet", serve: serveGnet},
	{name: "nbio", title: "nbio", serve: serveNbio},
	netPeer,
	{name: "epoll-c", title: "epoll in C", serve: serveC, needs: []string{"cc"}},
	{name: "netty", title: "Netty", serve: serveNetty, needs: []string{"java", "javac", nettyJars[0]}, slow: true},
}

var netPeer = peer{name: "net", title: "net", serve: serveNet}

var tlsPeers = []peer{
	{name: "loopwheel", title: "EngineGnet", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineGnet) }},
	{name: "loopwheel-epoll", title: "EngineEpoll", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineEpoll) }},
	{name: "net", title: "net + crypto/tls", serve: serveNet},
}

// config returns the settings of a server that speaks TLS, nil for the others.
func (s setup) config() *tls.Config {
	if !s.TLS {
		return nil
	}
	return &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("bench")}}
}

// echoer is the handler of loopwheel's server.
type echoer struct{}

func (echoer) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (echoer) OnClose(*loop.Conn, error)                {}

// serveLoopwheel has everything on that a server on the internet wants.
func serveLoopwheel(s setup, engine loop.Engine) error {
	return measure.Serve(&loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		Engine:      engine,
		TLS:         s.config(),
		Codec:       codec.Length{Max: 1 << 20},
		NumLoops:    s.Loops,
		Limits:      loop.Limits{MaxConns: 15_000, MaxConnsPerIP: 15_000, AcceptRate: 1_000_000},
		IdleTimeout: s.Timeout,
		Timeouts:    loop.Timeouts{IdleJitter: s.Timeout / 10, FirstByte: s.Timeout, Frame: s.Timeout},
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.WriteStalled, s.Timeout, func(int) { c.Close() })
			return echoer{}
		},
	})
}

// gnetServer has no timeout.
type gnetServer struct{ gnet.BuiltinEventEngine }

func (*gnetServer) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	if n := whole(in); n > 0 {
		_, _ = c.Write(in[:n])
		_, _ = c.Discard(n)
	}
	return gnet.None
}

func serveGnet(s setup) error {
	return measure.RunGnet("tcp", &gnetServer{}, gnet.WithNumEventLoop(s.Loops))
}

// serveNbio has no timeout.
func serveNbio(s setup) error {
	logging.SetLevel(logging.LevelNone)
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	e := nbio.NewEngine(nbio.Config{
		Network: "tcp", Addrs: []string{ln.Addr().String()}, NPoller: s.Loops,
		Listen: func(string, string) (net.Listener, error) { return ln, nil },
	})
	e.OnOpen(func(c *nbio.Conn) { c.SetSession(&remainder{}) })
	e.OnData(func(c *nbio.Conn, data []byte) {
		if out := c.Session().(*remainder).frames(data); len(out) > 0 {
			_, _ = c.Write(out)
		}
	})
	if err := e.Start(); err != nil {
		return err
	}
	select {}
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline set before each read.
func serveNet(s setup) error {
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	if cfg := s.config(); cfg != nil {
		ln = tls.NewListener(ln, cfg)
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go echoNet(c, s.Timeout)
	}
}

func echoNet(c net.Conn, timeout time.Duration) {
	defer c.Close()
	in, have := make([]byte, 4<<10), 0
	for {
		if c.SetReadDeadline(time.Now().Add(timeout)) != nil {
			return
		}
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		if n = whole(in[:have]); n > 0 {
			if _, err := c.Write(in[:n]); err != nil {
				return
			}
			have = copy(in, in[n:have])
		} else if have == len(in) {
			in = append(in, make([]byte, 64<<10)...)
		}
	}
}
