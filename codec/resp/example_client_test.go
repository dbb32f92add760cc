package resp_test

import (
	"cmp"
	"context"
	"fmt"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// Redis asked from a loop, on one connection: its replies come in the order of the requests, so a
// Pipeline knows which is whose. What plays Redis here is a server of a few lines.
func ExampleClient() {
	redis := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: resp.Server{},
		Accept: func(c *loop.Conn) loop.Handler {
			requests, stored := resp.Of(c), make(map[string]string)
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				switch args := requests.Args(); string(args[0]) {
				case "SET":
					stored[string(args[1])] = string(args[2])
					return c.Send(resp.AppendSimple(nil, "OK"))
				case "GET":
					return c.Send(resp.AppendBulk(nil, stored[string(args[1])]))
				}
				return c.Send(resp.AppendError(nil, "ERR unknown command"))
			})
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := redis.Start(ctx); err != nil {
		panic(err)
	}
	replies := make(chan string, 3)
	open := func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			panic(err)
		}
		requests := handler.NewPipeline[resp.Value](c, handler.CallLimits{})
		for _, words := range [][]string{{"SET", "k", "hello"}, {"GET", "k"}, {"FLY"}} {
			_, _ = requests.Begin(0, func(v resp.Value, err error) {
				if err = cmp.Or(err, v.Err()); err != nil { // no reply, or Redis refuses
					replies <- "error: " + err.Error()
					return
				}
				replies <- string(v.Str)
			})
			_ = c.Send(resp.AppendCommand(nil, words...))
		}
		return loop.HandlerFunc(func(_ *loop.Conn, frame []byte) error {
			v, err := resp.Parse(frame)
			v.Str = append([]byte(nil), v.Str...) // it is a piece of the frame, which is borrowed
			requests.Answer(v)
			return err
		})
	}
	loop.Dialer{Codec: resp.Client{}}.Dial(redis.Loops()[0], "tcp://"+redis.LocalAddr().String(), open)
	for range 3 {
		fmt.Println(<-replies)
	}
	cancel()
	fmt.Println(redis.Wait())
	// Output:
	// OK
	// hello
	// error: ERR unknown command
	// <nil>
}
