//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/loop"
)

// proxyPeers pass bytes to an echo server and back.
var proxyPeers = []peer{
	{name: "loopwheel-pipe", title: "loopwheel", serve: proxyLoopwheel},
	{name: "haproxy", title: "HAProxy", serve: func(s setup) error { return proxyHAProxy(s, "nosplice", "") }, needs: []string{"haproxy"}, mute: true},
	{name: "haproxy-splice", title: "HAProxy, splicing", serve: func(s setup) error {
		return proxyHAProxy(s, "", "option splice-auto")
	}, needs: []string{"haproxy"}, mute: true},
	{name: "nginx", title: "nginx stream", serve: proxyNginx, needs: []string{"nginx", nginxModule}, mute: true},
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
	%s
defaults
	mode tcp
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	%s
frontend f
	bind %s
	default_backend b
backend b
	server s %s
`

func proxyHAProxy(s setup, global, options string) error {
	return s.becomeProxy("haproxy", func(addr string) string {
		return fmt.Sprintf(haproxyConfig, s.Loops, global, options, addr, s.To)
	}, "-q", "-db", "-f")
}

const (
	nginxModule = "/usr/lib/nginx/modules/ngx_stream_module.so"
	nginxConfig = `daemon off;
master_process off;
worker_processes 1;
error_log stderr error;
pid %s/nginx.pid;
load_module ` + nginxModule + `;
events { worker_connections 16000; }
stream { server { listen %s; proxy_pass %s; proxy_buffer_size 16k; } }
`
)

func proxyNginx(s setup) error {
	return s.becomeProxy("nginx", func(addr string) string { return fmt.Sprintf(nginxConfig, s.Dir, addr, s.To) }, "-p", s.Dir, "-c")
}

// becomeProxy says where the program will listen, and is it from then on.
func (s setup) becomeProxy(program string, config func(addr string) string, args ...string) error {
	addr, err := measure.FreeAddr()
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, strings.ReplaceAll(addr, ":", "-"))
	if err := os.WriteFile(file, []byte(config(addr)), 0o600); err != nil {
		return err
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	return syscall.Exec(path, append(append([]string{program}, args...), file), os.Environ())
}
