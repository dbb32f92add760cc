package loop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Two ports on the same loops: lines for people, and a length before each message for programs.
func ExampleListener() {
	srv := &loop.Server{
		Codec:     codec.Lines{},
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Length{Size: 2}}},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		},
	}
	person, stop := serve(srv)
	defer stop()
	program, err := net.Dial("tcp", srv.Addrs()[1].String())
	if err != nil {
		panic(err)
	}
	defer program.Close()

	fmt.Fprint(person, "hello\n")
	line, _ := bufio.NewReader(person).ReadString('\n')
	fmt.Printf("%q\n", line)
	fmt.Fprint(program, "\x00\x05hello")
	frame := make([]byte, 7)
	_, _ = io.ReadFull(program, frame)
	fmt.Printf("%q\n", frame)
	// Output:
	// "hello\n"
	// "\x00\x05hello"
}

// A page for a balancer's health check, on a port of net/http. It fails from the end of the server's
// context on; Server.Drain.Delay gives the balancer time to ask.
func ExampleServer_Draining() {
	srv := &loop.Server{
		Addr:  "tcp://:7000",
		Drain: loop.Drain{Delay: 5 * time.Second, KeepAccepting: true},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		},
	}
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		if srv.Draining() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%d connections\n", srv.Stats().Conns)
	})
}

// An upload is not cut in the middle when the server ends: from "begin" to "end" the connection is
// busy, and the drain waits for it.
func ExampleConn_SetBusy() {
	ctx, cancel := context.WithCancel(context.Background())
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				switch string(line) {
				case "begin":
					c.SetBusy(true)
				case "end":
					c.SetBusy(false)
				}
				return c.Send(line)
			})
		},
	}
	if err := srv.Start(ctx); err != nil {
		panic(err)
	}
	client, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		panic(err)
	}
	answers := bufio.NewScanner(client)
	say := func(line string) {
		fmt.Fprintln(client, line)
		answers.Scan()
		fmt.Println(answers.Text())
	}
	say("begin")
	cancel() // the server ends
	say("data")
	say("end")
	fmt.Println(answers.Scan(), client.Close(), srv.Wait())
	// Output:
	// begin
	// data
	// end
	// false <nil> <nil>
}

// A source that would fill the memory is stopped by the mark, and goes on when the output is out.
func ExampleConn_OnHighWater() {
	accept := func(c *loop.Conn) loop.Handler {
		source := c.Every(time.Millisecond, func() { _ = c.Send(make([]byte, 4096)) })
		c.OnHighWater(64<<10, func() { source.Stop() })
		c.OnFlushed(func() {
			if !source.Pending() {
				source = c.Every(time.Millisecond, func() { _ = c.Send(make([]byte, 4096)) })
			}
		})
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}
	_ = &loop.Server{Addr: "tcp://:7000", Accept: accept}
}

// A login may take half a minute, and as long again for each try.
func ExampleTimer_Reset() {
	accept := func(c *loop.Conn) loop.Handler {
		deadline := c.AfterFunc(30*time.Second, c.Close)
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			if string(msg) == "secret" {
				deadline.Stop()
				return c.Send([]byte("welcome"))
			}
			deadline.Reset(30 * time.Second)
			return c.Send([]byte("try again"))
		})
	}
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: accept})
	defer stop()
	answers := bufio.NewScanner(client)
	for _, word := range []string{"sesame", "secret"} {
		fmt.Fprintln(client, word)
		answers.Scan()
		fmt.Println(answers.Text())
	}
	// Output:
	// try again
	// welcome
}

// Any goroutine may have something done on each loop, here to count who is paused.
func ExampleLoop_Post() {
	srv := &loop.Server{NumLoops: 2, Accept: func(c *loop.Conn) loop.Handler {
		c.PauseRead()
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	}}
	_, stop := serve(srv)
	defer stop()
	for paused := 0; paused == 0; { // until the connection is accepted
		counts := make(chan int)
		for _, l := range srv.Loops() {
			err := l.Post(func() {
				n := 0
				for c := range l.Conns() {
					if c.Info().Paused {
						n++
					}
				}
				counts <- n
			})
			if err != nil {
				log.Fatal(err)
			}
		}
		paused = <-counts + <-counts
	}
	fmt.Println("one is paused")
	// Output: one is paused
}
