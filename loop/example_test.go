package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// serve starts a server for an example and returns a client's connection to it, and what ends both.
func serve(srv *loop.Server) (client net.Conn, stop func()) {
	srv.Addr = "tcp://127.0.0.1:0"
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		panic(err)
	}
	client, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		panic(err)
	}
	return client, func() {
		_ = client.Close()
		cancel()
		if err := srv.Wait(); err != nil {
			panic(err)
		}
	}
}

// A server of text lines, whole: it says each line back, and evicts who is silent for a minute.
func ExampleServer() {
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return c.Send(line) })
		},
		IdleTimeout: time.Minute,
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
	fmt.Fprintln(client, "hello")
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	client.Close()

	cancel() // the server closes its connections and ends
	fmt.Println(srv.Wait())
	// Output:
	// hello
	// <nil>
}

// session is the state of a connection: it counts what comes, without a lock.
type session struct{ lines int }

func (s *session) OnMessage(c *loop.Conn, line []byte) error {
	s.lines++
	if string(line) == "quit" {
		_ = c.Send([]byte("bye"))
		c.Close() // flushes
		return nil
	}
	return c.Send(fmt.Appendf(nil, "%d: %s", s.lines, line))
}

func (s *session) OnClose(_ *loop.Conn, err error) {
	fmt.Printf("closed after %d lines: %v\n", s.lines, err)
}

// A Handler with state, which belongs to its connection alone.
func ExampleHandler() {
	client, stop := serve(&loop.Server{
		Codec:  codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler { return new(session) },
	})
	fmt.Fprint(client, "a\nb\nquit\n")
	answers, _ := io.ReadAll(client)
	fmt.Print(string(answers))
	stop()
	// Unordered output:
	// 1: a
	// 2: b
	// bye
	// closed after 3 lines: <nil>
}

// A heartbeat: ping a peer that is silent, and give up when it has missed three.
func ExampleConn_OnIdle() {
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.IdleRead, 10*time.Millisecond, func(n int) {
				if n > 3 {
					c.CloseWithError(errors.New("no answer to three pings"))
					return
				}
				_ = c.Send([]byte("ping"))
			})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		},
	})
	defer stop()
	pings, _ := io.ReadAll(client) // until the server gives up
	fmt.Print(string(pings))
	// Output:
	// ping
	// ping
	// ping
}

// Anything outside of the loop reaches a connection by its Ref.
func ExampleRef_Tell() {
	refs := make(chan loop.Ref, 1)
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			refs <- c.Ref()
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		},
	})
	defer stop()
	ref := <-refs
	err := ref.Tell(func(c *loop.Conn) { // runs on c's loop
		_ = c.Send([]byte("news"))
		c.Close()
	})
	fmt.Println(err)
	news, _ := io.ReadAll(client)
	fmt.Print(string(news))
	fmt.Println(ref.Tell(func(*loop.Conn) {}))
	// Output:
	// <nil>
	// news
	// loop: connection closed
}

// A chat of one room, by hand: each line goes to all members, and crosses to each loop once for all
// that a piece of input says, however many members there are.
func ExampleRef_TellFrom() {
	var mu sync.Mutex
	var members []loop.Ref
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			mu.Lock()
			members = append(members, c.Ref())
			mu.Unlock()
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				said := bytes.Clone(line)
				say := func(member *loop.Conn) { _ = member.Send(said) } // one for all of them
				mu.Lock()
				defer mu.Unlock()
				for _, m := range members {
					_ = m.TellFrom(c.Loop(), say) // or the member has gone
				}
				return nil
			})
		},
	})
	defer stop()
	fmt.Fprint(client, "hello\nworld\n")
	r := bufio.NewScanner(client)
	for range 2 {
		r.Scan()
		fmt.Println(r.Text())
	}
	// Output:
	// hello
	// world
}

// hits counts the requests of each loop: no lock, as each has its own.
var hits = loop.NewLocal(func(*loop.Loop) int { return 0 })

func ExampleLocal() {
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				n := hits.Get(c.Loop())
				*n++
				return c.Send(fmt.Append(nil, *n))
			})
		},
	})
	defer stop()
	fmt.Fprint(client, "a\nb\nc\n")
	for r := bufio.NewScanner(client); r.Scan(); {
		fmt.Println(r.Text())
		if r.Text() == "3" {
			break
		}
	}
	// Output:
	// 1
	// 2
	// 3
}

// Something that each loop does from time to time.
func ExampleLoop_Every() {
	ticks := make(chan int)
	_, stop := serve(&loop.Server{
		NumLoops: 1,
		Accept:   func(*loop.Conn) loop.Handler { return nil },
		OnStart: func(l *loop.Loop) {
			n := 0
			var timer loop.Timer
			timer = l.Every(5*time.Millisecond, func() {
				if n++; n == 3 {
					timer.Stop()
				}
				ticks <- n
			})
		},
	})
	defer stop()
	fmt.Println(<-ticks, <-ticks, <-ticks)
	// Output: 1 2 3
}

// A deadline for a login, which a message in time prevents.
func ExampleConn_AfterFunc() {
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			deadline := c.AfterFunc(10*time.Second, func() { c.CloseWithError(errors.New("no login")) })
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				if deadline.Stop() {
					return c.Send(append([]byte("welcome, "), line...))
				}
				return c.Send([]byte("you are logged in already"))
			})
		},
	})
	defer stop()
	fmt.Fprint(client, "gopher\ngopher\n")
	r := bufio.NewScanner(client)
	for range 2 {
		r.Scan()
		fmt.Println(r.Text())
	}
	// Output:
	// welcome, gopher
	// you are logged in already
}

// A protocol that begins with a line of text and goes on in frames.
func ExampleConn_SetCodec() {
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if string(msg) == "UPGRADE" {
					c.SetCodec(codec.Length{Size: 2})
					return nil
				}
				return c.Send(msg)
			})
		},
	})
	defer stop()
	fmt.Fprint(client, "UPGRADE\n\x00\x05hello")
	frame := make([]byte, 7)
	_, _ = io.ReadFull(client, frame)
	fmt.Printf("%q\n", frame)
	// Output: "\x00\x05hello"
}
