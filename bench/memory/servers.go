package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// idleTimeout is what loopwheel and net enforce. Nothing is silent for as long here.
const idleTimeout = 10 * time.Minute

// servers start and return their address.
var servers = map[string]func() (string, error){
	"loopwheel": startLoopwheel,
	"gnet":      startGnet,
	"net":       startNet,
}

// usage is the memory of this process.
type usage struct{ resident, heap, objects int64 }

func (u usage) minus(o usage) usage {
	return usage{u.resident - o.resident, u.heap - o.heap, u.objects - o.objects}
}

// current measures, after what is garbage has been given back to the system.
func current() (u usage, err error) {
	runtime.GC()
	debug.FreeOSMemory()
	var pages, resident int64
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return u, err
	}
	if _, err := fmt.Sscan(string(statm), &pages, &resident); err != nil {
		return u, err
	}
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/objects:objects"},
	}
	metrics.Read(samples)
	return usage{
		resident: resident * int64(os.Getpagesize()),
		heap:     int64(samples[0].Value.Uint64()),
		objects:  int64(samples[1].Value.Uint64()),
	}, nil
}

// echoer is the handler of loopwheel's server: it has no state, so that what is measured is the
// connection.
type echoer struct{}

func (echoer) OnMessage(c *loop.Conn, msg []byte) error { return c.Send(msg) }
func (echoer) OnClose(*loop.Conn, error)                {}

func startLoopwheel() (string, error) {
	srv := &loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		Codec:       codec.Length{},
		Accept:      func(*loop.Conn) loop.Handler { return echoer{} },
		IdleTimeout: idleTimeout,
	}
	if err := srv.Start(context.Background()); err != nil {
		return "", err
	}
	return srv.LocalAddr().String(), nil
}

// quiet keeps gnet from writing to the output, which has answers only.
type quiet struct{}

func (quiet) Debugf(string, ...any) {}
func (quiet) Infof(string, ...any)  {}
func (quiet) Warnf(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

// raw is an echo server on gnet that has nothing else.
type raw struct {
	gnet.BuiltinEventEngine
	booted chan struct{}
}

func (r *raw) OnBoot(gnet.Engine) gnet.Action {
	close(r.booted)
	return gnet.None
}

func (*raw) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	_, _ = c.Write(b)
	return gnet.None
}

func startGnet() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	r := &raw{booted: make(chan struct{})}
	failed := make(chan error, 1)
	go func() { failed <- gnet.Run(r, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithLogger(quiet{})) }()
	select {
	case err := <-failed:
		return "", err
	case <-r.booted:
		return addr, nil
	}
}

func startNet() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoNet(c)
		}
	}()
	return l.Addr().String(), nil
}

// echoNet is what one writes with package net: a buffered reader, and a deadline for each message.
func echoNet(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	var head [4]byte
	for {
		if err := c.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			return
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(r, msg); err != nil {
			return
		}
		if _, err := c.Write(append(head[:], msg...)); err != nil {
			return
		}
	}
}
