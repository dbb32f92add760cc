package main

import (
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/cloudwego/netpoll"
	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"
	"github.com/panjf2000/gnet/v2"
	"github.com/tidwall/evio"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// cellPeers are compared message by message. All but loopwheel find the frames by hand, and write
// all that are whole back in one piece, as they came: no server that does something with its
// messages could be quicker.
var cellPeers = []peer{
	{"loopwheel", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 0) }},
	{"loopwheel-epoll", func(s setup) error { return serveLoopwheel(s, loop.EngineEpoll, 0) }},
	{"loopwheel-net", func(s setup) error { return serveLoopwheel(s, loop.EngineNet, 0) }},
	{"gnet", func(s setup) error { return runGnet(&gnetServer{}, s) }},
	{"nbio", serveNbio},
	{"netpoll", serveNetpoll},
	{"evio", serveEvio},
	{"net", serveNet},
}

// morePeers are compared when they are asked for by name: gnet with read buffers as large as
// loopwheel's, and loopwheel with other marks from which on a peer's input waits for its output.
var morePeers = []peer{
	{"gnet-256k", func(s setup) error { return runGnet(&gnetServer{}, s, gnet.WithReadBufferCap(256<<10)) }},
	{"loopwheel-high-32k", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 32<<10) }},
	{"loopwheel-high-64k", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 64<<10) }},
	{"loopwheel-high-128k", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 128<<10) }},
	{"loopwheel-high-256k", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 256<<10) }},
	{"loopwheel-high-1m", func(s setup) error { return serveLoopwheel(s, loop.EngineDefault, 1<<20) }},
}

// echoer is the handler of loopwheel's server.
type echoer struct{}

func (echoer) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (echoer) OnClose(*loop.Conn, error)                {}

// serveLoopwheel has everything on that a server on the internet wants. On Go's own net, which is
// for development, it shows what gnet is worth. highWater 0 is the default.
func serveLoopwheel(s setup, engine loop.Engine, highWater int) error {
	return runLoopwheel(&loop.Server{
		Engine:           engine,
		HoldBackAt:       highWater,
		Codec:            codec.Length{Max: 1 << 20},
		NumLoops:         s.loops,
		IdleTimeout:      s.timeout,
		IdleJitter:       s.timeout / 10,
		FirstByteTimeout: s.timeout,
		FrameTimeout:     s.timeout,
		MaxConns:         15_000,
		MaxConnsPerIP:    15_000,
		AcceptRate:       1_000_000,
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.WriteStalled, s.timeout, func(int) { c.Close() })
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

// gnetServer has no timeout.
type gnetServer struct {
	gnet.BuiltinEventEngine
}

func (*gnetServer) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	if n := whole(in); n > 0 {
		_, _ = c.Write(in[:n])
		_, _ = c.Discard(n)
	}
	return gnet.None
}

// runGnet looks for a free port, as gnet does not tell which one it got for ":0".
func runGnet(h gnet.EventHandler, s setup, opts ...gnet.Option) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return err
	}
	opts = append(opts, gnet.WithLogger(silent{}), gnet.WithNumEventLoop(s.loops))
	return gnet.Run(booted{h, addr}, "tcp://"+addr, opts...)
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

func (b booted) OnBoot(e gnet.Engine) gnet.Action {
	listening(b.addr)
	return b.EventHandler.OnBoot(e)
}

// serveNbio has no timeout.
func serveNbio(s setup) error {
	logging.SetLevel(logging.LevelNone)
	addr := make(chan string, 1)
	e := nbio.NewEngine(nbio.Config{
		Network: "tcp",
		Addrs:   []string{"127.0.0.1:0"},
		NPoller: s.loops,
		Listen: func(network, a string) (net.Listener, error) {
			ln, err := net.Listen(network, a)
			if err == nil {
				addr <- ln.Addr().String()
			}
			return ln, err
		},
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
	listening(<-addr)
	select {}
}

// serveNetpoll has no timeout.
func serveNetpoll(s setup) error {
	if err := netpoll.Configure(netpoll.Config{PollerNum: s.loops}); err != nil {
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
	listening(ln.Addr().String())
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

// serveEvio has no timeout.
func serveEvio(s setup) error {
	return evio.Serve(evio.Events{
		NumLoops: s.loops,
		Serving: func(srv evio.Server) (action evio.Action) {
			listening(srv.Addrs[0].String())
			return evio.None
		},
		Opened: func(c evio.Conn) (out []byte, opts evio.Options, action evio.Action) {
			c.SetContext(&remainder{})
			opts.ReuseInputBuffer = true
			return nil, opts, evio.None
		},
		Data: func(c evio.Conn, in []byte) (out []byte, action evio.Action) {
			return c.Context().(*remainder).frames(in), evio.None
		},
	}, "tcp://127.0.0.1:0")
}

// serveNet is Go's own net: a goroutine for each connection, and a deadline set before each read.
func serveNet(s setup) error {
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
		go echoNet(c, s.timeout)
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
