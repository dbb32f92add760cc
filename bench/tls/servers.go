package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	nbiotls "github.com/lesismal/llib/std/crypto/tls"
	"github.com/lesismal/nbio"
	ntls "github.com/lesismal/nbio/extension/tls"
	"github.com/lesismal/nbio/logging"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/selfsigned"
	"github.com/loopwheel/loopwheel/loop"
)

// header is the size of a frame's length field.
const header = 4

var clientConfig = &tls.Config{InsecureSkipVerify: true}

// runServer serves until its input ends, and says its usage when it is asked.
func runServer(peer, profile string) error {
	serve, ok := map[string]func(cert, key []byte) (string, error){
		"loopwheel": serveLoopwheel, "net": serveNet, "nbio": serveNbio,
	}[peer]
	if !ok {
		return fmt.Errorf("no peer %q", peer)
	}
	cert, key, err := selfSigned()
	if err != nil {
		return err
	}
	addr, err := serve(cert, key)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	if profile != "" {
		f, err := os.Create(profile + "." + peer)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			return err
		}
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "memory" {
			time.Sleep(200 * time.Millisecond)
			runtime.GC()
			debug.FreeOSMemory() // and again
		}
		fmt.Println(int64(cpu()), heap(), resident(), runtime.NumGoroutine())
	}
	pprof.StopCPUProfile()
	os.Exit(0)
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident returns the anonymous memory that /proc tells of.
func resident() (n int) {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n << 10
}

func selfSigned() (cert, key []byte, err error) {
	pair, err := selfsigned.New(time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), "bench")
	if err != nil {
		return nil, nil, err
	}
	return selfsigned.PEM(pair)
}

func config(cert, key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}}, err
}

func serveLoopwheel(cert, key []byte) (string, error) {
	cfg, err := config(cert, key)
	if err != nil {
		return "", err
	}
	echo := loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: cfg, Codec: codec.Length{}, IdleTimeout: time.Hour,
		Accept: func(*loop.Conn) loop.Handler { return echo }}
	if err := srv.Start(context.Background()); err != nil {
		return "", err
	}
	return srv.LocalAddr().String(), nil
}

// serveNet has a goroutine for each connection, with a read deadline, as servers with net have.
func serveNet(cert, key []byte) (string, error) {
	cfg, err := config(cert, key)
	if err != nil {
		return "", err
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go echoNet(c)
		}
	}()
	return ln.Addr().String(), nil
}

func echoNet(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	var frame []byte
	for {
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
		head, err := r.Peek(header)
		if err != nil {
			return
		}
		n := header + int(binary.BigEndian.Uint32(head))
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		if _, err := io.ReadFull(r, frame[:n]); err != nil {
			return
		}
		if _, err := c.Write(frame[:n]); err != nil {
			return
		}
	}
}

// serveNbio sends back what comes, without a look at frames, as nbio has no codecs: that favours
// it.
func serveNbio(cert, key []byte) (string, error) {
	pair, err := nbiotls.X509KeyPair(cert, key)
	if err != nil {
		return "", err
	}
	cfg := &nbiotls.Config{Certificates: []nbiotls.Certificate{pair}}
	logging.SetLevel(logging.LevelNone)
	g := nbio.NewEngine(nbio.Config{Network: "tcp", Addrs: []string{"127.0.0.1:0"}, NPoller: runtime.GOMAXPROCS(0)})
	g.OnOpen(ntls.WrapOpen(cfg, false, func(c *nbio.Conn, _ *ntls.Conn) {
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
	}))
	g.OnData(onNbioData)
	if err := g.Start(); err != nil {
		return "", err
	}
	if len(g.Addrs) == 0 {
		return "", errors.New("nbio does not say where it listens")
	}
	return g.Addrs[0], nil
}

var nbioBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func onNbioData(c *nbio.Conn, data []byte) {
	t, ok := c.Session().(*ntls.Conn)
	if !ok {
		return
	}
	_, _ = t.Append(data)
	buf := nbioBuffers.Get().(*[]byte)
	defer nbioBuffers.Put(buf)
	for {
		n, err := t.Read(*buf)
		if err != nil {
			_ = c.Close()
			return
		}
		if n == 0 {
			return
		}
		_, _ = t.Write((*buf)[:n])
	}
}
