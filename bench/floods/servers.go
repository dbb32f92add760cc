package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	gorilla "github.com/gorilla/websocket"
	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// A counter counts messages.
type counter struct {
	n atomic.Int64
	_ [56]byte // others are elsewhere
}

// A work is what a handler does with each message of a flood. It counts them one by one: a server's
// own numbers may be those of its last turn, which was up to half a second ago.
type work struct {
	turns int
	sink  uint64
	n     counter
}

func (w *work) do() {
	w.sink += spin(w.turns)
	w.n.n.Add(1)
}

func (w *work) messages() int64 { return w.n.n.Load() }

//go:noinline
func spin(n int) (x uint64) {
	x = 88172645463325252
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate returns how many turns of spin take a microsecond.
func calibrate() float64 {
	const turns = 1_000_000
	best := time.Hour
	for range 10 {
		began := time.Now()
		if spin(turns) == 0 {
			return 0
		}
		best = min(best, time.Since(began))
	}
	return turns / (float64(best) / float64(time.Microsecond))
}

// A server listens at two addresses, and tells how many messages of the floods it has had.
type server interface {
	start(kind string, turns int) (probes, floods string, err error)
	messages() int64
}

func runServer(name, kind string, turns int) error {
	s, ok := map[string]server{"loopwheel": new(ours), "gnet": new(gnetServer), "net": new(netServer)}[name]
	if !ok {
		return fmt.Errorf("no server %q", name)
	}
	probes, floods, err := s.start(kind, turns)
	if err != nil {
		return err
	}
	fmt.Println(probes, floods)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		fmt.Println(s.messages(), r.Utime.Nano()+r.Stime.Nano())
	}
	return nil
}

// ours is loopwheel's, with what it has by default.
type ours struct {
	loop.Server
	work
}

func (s *ours) start(kind string, turns int) (probes, floods string, err error) {
	var framing codec.Codec = &websocket.Codec{Compress: true}
	switch kind {
	case "tiny":
		framing = codec.Fixed{Size: tinySize}
	case "huge":
		framing = codec.Length{Max: hugeSize}
	}
	s.turns = turns
	s.Server = loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1,
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		},
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: framing, Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { s.do(); return nil })
		}}},
	}
	if err := s.Start(context.Background()); err != nil {
		return "", "", err
	}
	return s.Addrs()[0].String(), s.Addrs()[1].String(), nil
}

// whole returns the length of the first message in data, or 0.
func whole(kind string, data []byte) int {
	switch {
	case kind == "tiny" && len(data) >= tinySize:
		return tinySize
	case kind == "huge" && len(data) >= 4:
		if n := 4 + int(binary.BigEndian.Uint32(data)); len(data) >= n {
			return n
		}
	}
	return 0
}

// gnetServer finds messages by hand.
type gnetServer struct {
	gnet.BuiltinEventEngine
	work
	kind   string
	probes string
	booted chan struct{}
}

func (s *gnetServer) start(kind string, turns int) (probes, floods string, err error) {
	if isWebSocket(kind) {
		return "", "", errors.New("raw gnet knows no WebSocket")
	}
	s.kind, s.turns, s.booted = kind, turns, make(chan struct{})
	if s.probes, err = freePort(); err == nil {
		floods, err = freePort()
	}
	if err != nil {
		return "", "", err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- gnet.Rotate(s, []string{"tcp://" + s.probes, "tcp://" + floods}, gnet.WithNumEventLoop(1), gnet.WithLogger(silent{}))
	}()
	select {
	case err = <-ended:
	case <-s.booted:
	}
	return s.probes, floods, err
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

func (s *gnetServer) OnBoot(gnet.Engine) gnet.Action {
	close(s.booted)
	return gnet.None
}

func (s *gnetServer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if c.LocalAddr().String() == s.probes {
		c.SetContext(s)
	}
	return nil, gnet.None
}

func (s *gnetServer) OnTraffic(c gnet.Conn) gnet.Action {
	in, _ := c.Peek(-1)
	if c.Context() != nil {
		_, _ = c.Write(in)
		_, _ = c.Discard(len(in))
		return gnet.None
	}
	done := 0
	for n := whole(s.kind, in); n > 0; n = whole(s.kind, in[done:]) {
		s.do()
		done += n
	}
	if done > 0 { // 0 would be all
		_, _ = c.Discard(done)
	}
	return gnet.None
}

// silent is a logger for gnet.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// netServer has a goroutine for each connection, and gorilla's WebSocket.
type netServer struct {
	kind  string
	turns int
	n     counter
}

func (s *netServer) start(kind string, turns int) (probes, floods string, err error) {
	runtime.GOMAXPROCS(runtime.NumCPU())
	s.kind, s.turns = kind, turns
	p, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	f, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	go acceptAll(p, func(c net.Conn) {
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			_, _ = c.Write(b)
		}
	})
	if isWebSocket(kind) {
		go func() { _ = http.Serve(f, http.HandlerFunc(s.inflate)) }()
	} else {
		go acceptAll(f, s.take)
	}
	return p.Addr().String(), f.Addr().String(), nil
}

func acceptAll(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

func (s *netServer) take(c net.Conn) {
	in, w := bufio.NewReaderSize(c, 64<<10), work{turns: s.turns}
	msg := make([]byte, hugeSize)
	for {
		n := tinySize
		if s.kind == "huge" {
			if _, err := io.ReadFull(in, msg[:4]); err != nil {
				return
			}
			n = int(binary.BigEndian.Uint32(msg))
		}
		if _, err := io.ReadFull(in, msg[:n]); err != nil {
			return
		}
		w.do()
		s.n.n.Add(1)
	}
}

func (s *netServer) inflate(rw http.ResponseWriter, r *http.Request) {
	upgrader := gorilla.Upgrader{EnableCompression: true}
	c, err := upgrader.Upgrade(rw, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetReadLimit(1 << 16)
	w := work{turns: s.turns}
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			return
		}
		w.do()
		s.n.n.Add(1)
	}
}

func (s *netServer) messages() int64 { return s.n.n.Load() }
