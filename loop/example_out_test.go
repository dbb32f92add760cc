package loop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// shout answers in capitals.
func shout(c *loop.Conn, line []byte) error { return c.Send([]byte(strings.ToUpper(string(line)))) }

// upstream runs another server, which an example dials.
func upstream() (addr string, stop func()) {
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(shout) }}
	client, stop := serve(srv)
	_ = client.Close()
	return "tcp://" + srv.LocalAddr().String(), stop
}

// A server that asks another one: the connection it dials is a Conn as well, on the same loop.
func ExampleDialer() {
	addr, stopUpstream := upstream()
	defer stopUpstream()
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			question, asker := string(line), c.Ref() // line is borrowed, and c may be gone by then
			loop.Dialer{Codec: codec.Lines{}, Timeout: 10 * time.Second}.Dial(c.Loop(), addr, func(up *loop.Conn, err error) loop.Handler {
				if err != nil {
					asker.CloseWithError(err)
					return nil
				}
				_ = up.Send([]byte(question))
				return loop.HandlerFunc(func(up *loop.Conn, answer []byte) error {
					up.Close()
					return asker.Send(answer)
				})
			})
			return nil
		})
	}})
	defer stop()
	fmt.Fprintln(client, "hello")
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	// Output: HELLO
}

// A proxy: bytes both ways, half-closes included. What comes before the upstream stands waits.
func ExamplePipe() {
	addr, stopUpstream := upstream()
	defer stopUpstream()
	client, stop := serve(&loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		c.PauseRead()
		loop.Dialer{}.Dial(c.Loop(), addr, func(up *loop.Conn, err error) loop.Handler {
			if err != nil {
				c.CloseWithError(err)
				return nil
			}
			loop.Pipe(c, up, loop.PipeConfig{IdleTimeout: time.Minute})
			c.ResumeRead()
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}})
	defer stop()
	fmt.Fprintln(client, "through a pipe")
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	// Output: THROUGH A PIPE
}

// A handler that others look up through whatever middlewares are around it.
func ExampleHandlerAs() {
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		c.AfterFunc(0, func() {
			if u, ok := loop.HandlerAs[*user](c); ok {
				_ = c.Send([]byte("hello " + u.name))
			}
		})
		return &user{name: "Ada"}
	}})
	defer stop()
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	// Output: hello Ada
}

type user struct{ name string }

func (*user) OnMessage(*loop.Conn, []byte) error { return nil }
func (*user) OnClose(*loop.Conn, error)          {}

// A producer that goes on when its output has gone, so that a slow peer costs little memory.
func ExampleConn_OnFlushed() {
	client, stop := serve(&loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		left := 1 << 20
		fill := func() {
			for c.Pending() < 64<<10 && left > 0 {
				n := min(left, 8<<10)
				left -= n
				_ = c.Send(make([]byte, n))
			}
			if left == 0 {
				c.Close() // after the pending output
			}
		}
		c.OnFlushed(fill)
		fill()
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}})
	defer stop()
	n, _ := io.Copy(io.Discard, client)
	fmt.Println(n, "bytes")
	// Output: 1048576 bytes
}

// A peer that ends its output still gets an answer.
func ExampleConn_OnEOF() {
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		lines := 0
		c.OnEOF(func() {
			_ = c.Send(fmt.Appendf(nil, "%d lines", lines))
			c.Close()
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { lines++; return nil })
	}})
	defer stop()
	fmt.Fprint(client, "one\ntwo\n")
	_ = client.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(client)
	fmt.Print(string(answer))
	// Output: 2 lines
}

// The last word to each connection when the server ends.
func ExampleServer_onDrain() {
	srv := &loop.Server{
		Addr:   "tcp://127.0.0.1:0",
		Codec:  codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(shout) },
		Hooks:  loop.Hooks{OnDrain: func(c *loop.Conn) { _ = c.Send([]byte("come back later")) }},
		Drain:  loop.Drain{Timeout: 10 * time.Second},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	client, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	in := bufio.NewReader(client)
	fmt.Fprintln(client, "here")
	line, _ := in.ReadString('\n')
	cancel()
	last, _ := in.ReadString('\n')
	fmt.Print(line, last)
	fmt.Println(srv.Wait())
	// Output:
	// HERE
	// come back later
	// <nil>
}
