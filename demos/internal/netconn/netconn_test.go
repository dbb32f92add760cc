// Package netconn tests protocols of others over loop.Conn.NetConn.
package netconn

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/hashicorp/yamux"
	"golang.org/x/crypto/ssh"

	"github.com/loopwheel/loopwheel/loop"
)

const size = 1 << 20

// serve has each connection of a server served by f, on a goroutine, and returns a connection to it.
func serve(t *testing.T, f func(nc net.Conn)) (addr string) {
	t.Helper()
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: func(c *loop.Conn) loop.Handler {
		nc, err := c.NetConn()
		if err != nil {
			t.Error(err)
			return nil
		}
		go f(nc)
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = srv.Wait() })
	return srv.LocalAddr().String()
}

// mustEcho sends a megabyte and wants it back.
func mustEcho(t *testing.T, rw io.ReadWriter, closeWrite func() error) {
	t.Helper()
	go func() {
		_, _ = rw.Write(make([]byte, size))
		_ = closeWrite()
	}()
	got, err := io.ReadAll(rw)
	if err != nil || len(got) != size {
		t.Errorf("%d bytes came back, %v: want %d", len(got), err, size)
	}
}

func TestSSH(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &ssh.ServerConfig{NoClientAuth: true}
	cfg.AddHostKey(signer)
	addr := serve(t, func(nc net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(nc, cfg)
		if err != nil {
			t.Error(err)
			return
		}
		go ssh.DiscardRequests(requests)
		for c := range channels {
			channel, requests, err := c.Accept()
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			go func() {
				_, _ = io.Copy(channel, channel)
				_ = channel.Close()
			}()
		}
	})
	client, err := ssh.Dial("tcp", addr, &ssh.ClientConfig{HostKeyCallback: ssh.FixedHostKey(signer.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			channel, requests, err := client.OpenChannel("echo", nil)
			if err != nil {
				t.Error(err)
				return
			}
			go ssh.DiscardRequests(requests)
			mustEcho(t, channel, channel.CloseWrite)
		})
	}
	wg.Wait()
}

func TestYamux(t *testing.T) {
	cfg := yamux.DefaultConfig()
	cfg.LogOutput = io.Discard // frames for streams that are closed
	addr := serve(t, func(nc net.Conn) {
		session, err := yamux.Server(nc, cfg)
		if err != nil {
			t.Error(err)
			return
		}
		for {
			stream, err := session.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(stream, stream)
				_ = stream.Close()
			}()
		}
	})
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	session, err := yamux.Client(nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			stream, err := session.Open()
			if err != nil {
				t.Error(err)
				return
			}
			mustEcho(t, stream, stream.Close)
		})
	}
	wg.Wait()
}

// listener is a net.Listener of connections that a loop has accepted.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) { return <-l, nil }
func (l listener) Close() error              { return nil }
func (l listener) Addr() net.Addr            { return &net.TCPAddr{} }

func TestNetHTTP(t *testing.T) {
	conns := make(listener)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		if err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = srv.Serve(conns) }()
	addr := serve(t, func(nc net.Conn) { conns <- nc })
	for range 3 { // on one connection
		pipe, w := io.Pipe()
		go func() {
			_, err := w.Write(make([]byte, size))
			_ = w.CloseWithError(err)
		}()
		r, err := http.Post("http://"+addr, "application/octet-stream", pipe)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		if got, want := fmt.Sprint(n, err), fmt.Sprint(size, error(nil)); got != want {
			t.Errorf("the answer: %s, want %s", got, want)
		}
		_ = r.Body.Close()
	}
}
