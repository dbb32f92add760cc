package loopwheel_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// An echo server, and a client that says one line to it.
func Example() {
	srv := &loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		Codec:       codec.Lines{},
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		IdleTimeout: time.Minute,
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		log.Fatal(err)
	}
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(c, "hello")
	answer, err := bufio.NewReader(c).ReadString('\n')
	fmt.Printf("%q %v\n", answer, err)
	stop()
	fmt.Println(srv.Wait())
	// Output:
	// "hello\n" <nil>
	// <nil>
}

func echo(c *loop.Conn, line []byte) error { return c.Send(line) }
