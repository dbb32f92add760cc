//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/netpoll"
	nbiotls "github.com/lesismal/llib/std/crypto/tls"
	"github.com/lesismal/nbio"
	ntls "github.com/lesismal/nbio/extension/tls"
	"github.com/lesismal/nbio/logging"
	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/selfsigned"
	"github.com/loopwheel/loopwheel/loop"
)

// echoPeers are compared message by message. All but loopwheel and Netty find the frames by hand,
// and write all that are whole back in one piece: no server that does something with its messages
// could be quicker.
var echoPeers = append([]peer{
	{name: "loopwheel", title: "EngineGnet", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineGnet) }},
	{name: "loopwheel-epoll", title: "EngineEpoll", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineEpoll) }},
	{name: "gnet", title: "gnet", serve: func(s setup) error { return serveGnet(s) }},
	{name: "gnet-256k", title: "gnet, 256 KiB", serve: func(s setup) error {
		return serveGnet(s, gnet.WithReadBufferCap(256<<10))
	}},
	{name: "nbio", title: "nbio", serve: serveNbio},
	{name: "netpoll", title: "netpoll", serve: serveNetpoll},
	{name: "net", title: "net", serve: serveNet},
}, floorPeers...)

var tlsPeers = []peer{
	{name: "loopwheel", title: "loopwheel", serve: func(s setup) error { return serveLoopwheel(s, loop.EngineGnet) }},
	{name: "net", title: "net + crypto/tls", serve: serveNet},
	{name: "nbio-tls", title: "nbio", serve: serveNbioTLS},
}

// selfSigned returns a certificate and its key as PEM.
func selfSigned() (cert, key []byte, err error) {
	pair, err := selfsigned.New(time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), "bench")
	if err != nil {
		return nil, nil, err
	}
	return selfsigned.PEM(pair)
}

// config returns the settings of a server that speaks TLS, nil for the others.
func (s setup) config() (*tls.Config, error) {
	if !s.TLS {
		return nil, nil
	}
	cert, key, err := selfSigned()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, err
}

// echoer is the handler of loopwheel's server.
type echoer struct{}

func (echoer) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (echoer) OnClose(*loop.Conn, error)                {}

// serveLoopwheel has everything on that a server on the internet wants.
func serveLoopwheel(s setup, engine loop.Engine) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	return measure.Serve(&loop.Server{
		Addr:             "tcp://127.0.0.1:0",
		Engine:           engine,
		TLS:              cfg,
		Codec:            codec.Length{Max: 1 << 20},
		NumLoops:         s.Loops,
		MaxConns:         15_000,
		IdleTimeout:      s.Timeout,
		IdleJitter:       s.Timeout / 10,
		FirstByteTimeout: s.Timeout,
		FrameTimeout:     s.Timeout,
		MaxConnsPerIP:    15_000,
		AcceptRate:       1_000_000,
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

func serveGnet(s setup, opts ...gnet.Option) error {
	return measure.RunGnet("tcp", &gnetServer{}, append(opts, gnet.WithNumEventLoop(s.Loops))...)
}

// nbioEngine returns an engine that listens on a free port, and where that is.
func nbioEngine(s setup) (*nbio.Engine, func() error) {
	logging.SetLevel(logging.LevelNone)
	addr := make(chan string, 1)
	e := nbio.NewEngine(nbio.Config{
		Network: "tcp",
		Addrs:   []string{"127.0.0.1:0"},
		NPoller: s.Loops,
		Listen: func(network, a string) (net.Listener, error) {
			ln, err := net.Listen(network, a)
			if err == nil {
				addr <- ln.Addr().String()
			}
			return ln, err
		},
	})
	return e, func() error {
		if err := e.Start(); err != nil {
			return err
		}
		fmt.Println(<-addr)
		select {}
	}
}

// serveNbio has no timeout.
func serveNbio(s setup) error {
	e, serve := nbioEngine(s)
	e.OnOpen(func(c *nbio.Conn) { c.SetSession(&remainder{}) })
	e.OnData(func(c *nbio.Conn, data []byte) {
		if out := c.Session().(*remainder).frames(data); len(out) > 0 {
			_, _ = c.Write(out)
		}
	})
	return serve()
}

// serveNbioTLS sends back what comes without a look at frames: that favours it.
func serveNbioTLS(s setup) error {
	cert, key, err := selfSigned()
	if err != nil {
		return err
	}
	pair, err := nbiotls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	e, serve := nbioEngine(s)
	e.OnOpen(ntls.WrapOpen(&nbiotls.Config{Certificates: []nbiotls.Certificate{pair}}, false, func(c *nbio.Conn, _ *ntls.Conn) {
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
	}))
	buffers := sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
	e.OnData(func(c *nbio.Conn, data []byte) {
		t, ok := c.Session().(*ntls.Conn)
		if !ok {
			return
		}
		_, _ = t.Append(data)
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		for {
			n, err := t.Read(*buf)
			if err != nil {
				_ = c.Close()
			}
			if n == 0 || err != nil {
				return
			}
			_, _ = t.Write((*buf)[:n])
		}
	})
	return serve()
}

// serveNetpoll has no timeout.
func serveNetpoll(s setup) error {
	if err := netpoll.Configure(netpoll.Config{PollerNum: s.Loops}); err != nil {
		return err
	}
	ln, err := netpoll.CreateListener("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	e, err := netpoll.NewEventLoop(echoNetpoll)
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	return e.Serve(ln)
}

// echoNetpoll runs on a goroutine of netpoll's, which calls it again for as long as there is input
// that it has not read: so it has to close the connection of which the rest of a frame will not
// come.
func echoNetpoll(_ context.Context, c netpoll.Connection) error {
	err := echoFrames(c.Reader(), c.Writer())
	if err != nil {
		_ = c.Close()
	}
	return err
}

// echoFrames returns when all frames that have come have been echoed.
func echoFrames(in netpoll.Reader, out netpoll.Writer) error {
	for {
		head, err := in.Peek(header)
		if err != nil {
			return err
		}
		frame, err := in.Next(header + int(binary.BigEndian.Uint32(head)))
		if err != nil {
			return err
		}
		if _, err := out.WriteBinary(frame); err != nil {
			return err
		}
		if in.Len() >= header {
			continue
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if err := in.Release(); err != nil || in.Len() == 0 {
			return err
		}
	}
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline set before each read.
func serveNet(s setup) error {
	cfg, err := s.config()
	if err != nil {
		return err
	}
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	if cfg != nil {
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
