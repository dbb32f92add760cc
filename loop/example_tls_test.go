package loop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A certificateFile is a certificate that is replaced while the server runs.
type certificateFile struct {
	cert, key string // PEM
	now       atomic.Pointer[tls.Certificate]
}

// load reads the files. If they are not good, what was there before stays.
func (f *certificateFile) load() error {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err == nil {
		f.now.Store(&pair)
	}
	return err
}

// get is for tls.Config.GetCertificate, which is called for each handshake.
func (f *certificateFile) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return f.now.Load(), nil
}

// Certificates are read anew on SIGHUP, as certbot's deploy hook may send it. Connections that are
// open keep the one they have.
func ExampleServer_certificates() {
	files := &certificateFile{cert: "cert.pem", key: "key.pem"}
	if err := files.load(); err != nil {
		fmt.Println(err)
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			if err := files.load(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	srv := &loop.Server{
		Addr:   "tcp://:7000",
		TLS:    &tls.Config{GetCertificate: files.get},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	if err := srv.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	_ = srv.Wait()
}

// One port, and a protocol for each name that clients offer by ALPN. crypto/tls refuses those that
// offer other names; who offers none is served the first.
func ExampleConn_TLS() {
	accept := map[string]func(*loop.Conn) loop.Handler{
		"echo/1": func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
		},
		"length/1": func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(fmt.Append(nil, len(line))) })
		},
	}
	cert := looptest.Certificate("example.test")
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: codec.Lines{},
		TLS:   &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"echo/1", "length/1"}},
		Accept: func(c *loop.Conn) loop.Handler {
			name := "echo/1"
			if state, ok := c.TLS(); ok && state.NegotiatedProtocol != "" {
				name = state.NegotiatedProtocol
			}
			return accept[name](c)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"echo/1", "length/1"} {
		client, err := tls.Dial("tcp", srv.LocalAddr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{name}})
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.WriteString(client, "hello\n")
		line, _ := bufio.NewReader(client).ReadString('\n')
		fmt.Printf("%s: %s", name, line)
		client.Close()
	}
	cancel()
	_ = srv.Wait()
	// Output:
	// echo/1: hello
	// length/1: 5
}
