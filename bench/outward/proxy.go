package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

var (
	messages = flag.String("sizes", "64,16384,262144", "pass messages of these `bytes`, separated by commas, through proxies")
	howLong  = flag.Duration("duration", 800*time.Millisecond, "let each turn of proxies last so `long`")
)

// proxyLoopwheel is examples/proxy without its frills: what passes bytes is the same.
func proxyLoopwheel() {
	to := "tcp://" + os.Getenv("OUTWARD_TO")
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(a *loop.Conn) loop.Handler {
		a.PauseRead()
		loop.Dialer{}.Dial(a.Loop(), to, func(b *loop.Conn, err error) loop.Handler {
			if err != nil {
				a.CloseWithError(err)
				return nil
			}
			loop.Pipe(a, b, loop.PipeConfig{IdleTimeout: time.Minute})
			a.ResumeRead()
			return quiet{}
		})
		return quiet{}
	}}
	check(srv.Start(context.Background()))
	fmt.Println(srv.LocalAddr())
	untilInputEnds()
}

// proxyIOCopy is the proxy that one writes first.
func proxyIOCopy() {
	ln := listen()
	fmt.Println(ln.Addr())
	go func() {
		for {
			a := must(ln.Accept()).(*net.TCPConn)
			go func() {
				b := must(net.Dial("tcp", os.Getenv("OUTWARD_TO"))).(*net.TCPConn)
				go func() { _, _ = io.Copy(b, a); _ = b.CloseWrite() }()
				_, _ = io.Copy(a, b)
				_ = a.CloseWrite()
			}()
		}
	}()
	untilInputEnds()
}

func tcpEcho() {
	ln := listen()
	fmt.Println(ln.Addr())
	go func() {
		for {
			c := must(ln.Accept())
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 256<<10))
				_ = c.Close()
			}()
		}
	}()
	untilInputEnds()
}

const haproxyConfig = `global
	nbthread 1
	maxconn 4000
	%s
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	%s
frontend f
	bind 127.0.0.1:%d
	default_backend b
backend b
	server s %s
`

const nginxConfig = `daemon off;
master_process off;
worker_processes 1;
error_log stderr error;
pid %[1]s/nginx.pid;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
events { worker_connections 16000; }
stream { server { listen 127.0.0.1:%[2]d; proxy_pass %[3]s; proxy_buffer_size 16k; } }
`

// startProxy starts a contender before the backend at to.
func startProxy(name, to string) *process {
	if name == "loopwheel" || name == "iocopy" {
		return start("proxy-"+name, "OUTWARD_TO="+to)
	}
	dir := must(os.MkdirTemp("", "outward"))
	ln := listen()
	port := ln.Addr().(*net.TCPAddr).Port
	_ = ln.Close()
	var cmd *exec.Cmd
	if name == "nginx" {
		file := filepath.Join(dir, "nginx.conf")
		check(os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, port, to), 0o600))
		cmd = exec.Command("nginx", "-p", dir, "-c", file)
	} else {
		options, global := "", "nosplice"
		if name == "haproxy-splice" {
			options, global = "option splice-auto", ""
		}
		file := filepath.Join(dir, "haproxy.cfg")
		check(os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, global, options, port, to), 0o600))
		cmd = exec.Command("haproxy", "-q", "-db", "-f", file)
	}
	check(cmd.Start())
	p := &process{cmd: cmd, in: closer(func() { _ = cmd.Process.Kill(); _ = os.RemoveAll(dir) }), addr: fmt.Sprintf("127.0.0.1:%d", port)}
	for range 6000 { // a minute
		if c, err := net.Dial("tcp", p.addr); err == nil {
			_ = c.Close()
			return p
		}
		time.Sleep(10 * time.Millisecond)
	}
	check(fmt.Errorf("%s does not start", name))
	return nil
}

type closer func()

func (f closer) Close() error { f(); return nil }

func benchProxy() {
	names := []string{"haproxy", "haproxy-splice", "nginx", "iocopy", "loopwheel"}
	var have []string
	for _, n := range names {
		program, _, _ := strings.Cut(n, "-")
		if _, err := exec.LookPath(program); err == nil || n == "iocopy" || n == "loopwheel" {
			have = append(have, n)
		}
	}
	echo := start("tcp-echo")
	defer echo.stop()
	for _, size := range sizes() {
		compare(fmt.Sprintf("proxy, 100 connections, %d bytes", size), have, func(name string) float64 {
			return proxyRound(name, echo.addr, size)
		})
	}
	for _, n := range have {
		if *only != "" {
			break
		}
		fmt.Printf("%-34s %-22s %8.1f KB\n", "proxy, memory of an idle pair", n, idlePair(n, echo.addr))
	}
}

// sizes are those of -sizes.
func sizes() (all []int) {
	for _, s := range strings.Split(*messages, ",") {
		all = append(all, must(strconv.Atoi(s)))
	}
	return all
}

// proxyRound returns the proxy's CPU time per message and its answer, in microseconds.
func proxyRound(name, to string, size int) float64 {
	p := startProxy(name, to)
	defer p.stop()
	var wg sync.WaitGroup
	var total atomic.Int64
	var begun time.Duration
	conns := make([]net.Conn, 100)
	for i := range conns {
		conns[i] = must(net.Dial("tcp", p.addr))
		roundTrip(conns[i], make([]byte, size), make([]byte, size))
	}
	begun = p.cpu()
	end := time.Now().Add(*howLong)
	for _, c := range conns {
		wg.Go(func() {
			defer c.Close()
			out, in := bytes.Repeat([]byte("x"), size), make([]byte, size)
			for time.Now().Before(end) {
				roundTrip(c, out, in)
				total.Add(1)
			}
		})
	}
	wg.Wait()
	return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / float64(total.Load())
}

func roundTrip(c net.Conn, out, in []byte) {
	go func() { _, _ = c.Write(out) }()
	_ = must(io.ReadFull(c, in))
}

// idlePair returns how much resident memory a pair of connections takes that has passed one
// message, in KB.
func idlePair(name, to string) float64 {
	const pairs = 2000
	p := startProxy(name, to)
	defer p.stop()
	open := func(n int) (conns []net.Conn) {
		for range n {
			c := must(net.Dial("tcp", p.addr))
			roundTrip(c, make([]byte, 64), make([]byte, 64))
			conns = append(conns, c)
		}
		return conns
	}
	defer closeAll(open(100))
	before := resident(p.cmd.Process.Pid)
	defer closeAll(open(pairs))
	return float64(resident(p.cmd.Process.Pid)-before) / pairs
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

func resident(pid int) (kb int) {
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &kb)
		}
	}
	return kb
}
