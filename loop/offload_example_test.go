package loop_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// lookUp stands for a database that takes its time, and gives up when nobody waits any more.
func lookUp(ctx context.Context, name string) (int, error) {
	select {
	case <-time.After(10 * time.Millisecond):
		return len(name), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// The loop goes on while the database is asked, for other connections and for this one. The reply
// is sent on the loop, so that it may use the connection and the handler's state.
func ExampleOffload() {
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				name := string(line) // line is valid until this returns
				var balance int
				return loop.Offload(c,
					func(ctx context.Context) (err error) {
						balance, err = lookUp(ctx, name)
						return err
					},
					func(c *loop.Conn, err error) {
						if err != nil {
							c.CloseWithError(err)
							return
						}
						_ = c.Send(fmt.Appendf(nil, "%s has %d", name, balance))
					})
			})
		},
	}
	ask(srv, "alice", "bob")
	// Output:
	// alice has 5
	// bob has 3
}

// ask runs srv, sends it lines and prints as many replies.
func ask(srv *loop.Server, lines ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(c, strings.Join(lines, "\n"))
	replies := bufio.NewScanner(c)
	for range lines {
		replies.Scan()
		fmt.Println(replies.Text())
	}
	c.Close()
	cancel()
	if err := srv.Wait(); err != nil {
		fmt.Println(err)
	}
}
