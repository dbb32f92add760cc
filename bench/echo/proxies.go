//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/loop"
)

// proxyPeers pass bytes to an echo server and back.
var proxyPeers = []peer{
	{name: "loopwheel-pipe", title: "loopwheel", serve: proxyLoopwheel},
	{name: "haproxy", title: "HAProxy", serve: proxyHAProxy, needs: []string{"haproxy"}, mute: true},
	{name: "io.Copy", title: "io.Copy, which splices", serve: proxyCopy},
}

// proxyLoopwheel passes bytes as examples/proxy does.
func proxyLoopwheel(s setup) error {
	return measure.Serve(&loop.Server{Addr: "tcp://127.0.0.1:0", Engine: loop.EngineEpoll, NumLoops: s.Loops, Accept: func(a *loop.Conn) loop.Handler {
		a.PauseRead()
		loop.Dialer{}.Dial(a.Loop(), "tcp://"+s.To, func(b *loop.Conn, err error) loop.Handler {
			if err != nil {
				a.CloseWithError(err)
				return nil
			}
			loop.Pipe(a, b, loop.PipeConfig{IdleTimeout: time.Minute})
			a.ResumeRead()
			return echoer{}
		})
		return echoer{}
	}})
}

// proxyCopy is the proxy that one writes first.
func proxyCopy(s setup) error {
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	for {
		a, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer a.Close()
			b, err := net.Dial("tcp", s.To)
			if err != nil {
				return
			}
			defer b.Close()
			go func() { _, _ = io.Copy(b, a); _ = b.(*net.TCPConn).CloseWrite() }()
			_, _ = io.Copy(a, b)
		}()
	}
}

const haproxyConfig = `global
	nbthread %d
	maxconn 4000
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend f
	bind %s
	default_backend b
backend b
	server s %s
`

// proxyHAProxy says where HAProxy will listen, and is it from then on.
func proxyHAProxy(s setup) error {
	addr, err := measure.FreeAddr()
	if err != nil {
		return err
	}
	path, err := exec.LookPath("haproxy")
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, s.Loops, addr, s.To), 0o600); err != nil {
		return err
	}
	fmt.Println(addr)
	return syscall.Exec(path, []string{"haproxy", "-q", "-db", "-f", file}, os.Environ())
}
