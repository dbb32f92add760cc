package websocket_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// A client of a server that wants to know who comes. What plays the server here is one of ours.
func ExampleClient() {
	gateway := &loop.Server{
		Addr: "tcp://127.0.0.1:0",
		Codec: &websocket.Codec{Path: "/v1", Upgrade: func(r *http.Request, _ http.Header) error {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return &websocket.HandshakeError{Status: http.StatusUnauthorized, Reason: "who are you?"}
			}
			return nil
		}},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(append([]byte("you said "), msg...)) })
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := gateway.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	bots := &loop.Server{NumLoops: 1} // it only dials
	if err := bots.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	said := make(chan string)
	for _, token := range []string{"guess", "secret"} {
		ws := &websocket.Client{
			URL:    "ws://" + gateway.LocalAddr().String() + "/v1",
			Header: http.Header{"Authorization": {"Bearer " + token}},
		}
		open := func(c *loop.Conn, err error) loop.Handler {
			if e, ok := errors.AsType[*websocket.HandshakeError](err); ok {
				said <- fmt.Sprintf("refused: %d %s", e.Status, e.Body)
				return nil
			} else if err != nil {
				said <- err.Error()
				return nil
			}
			_ = c.Send([]byte("hello"))
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				said <- string(msg)
				websocket.Close(c, websocket.StatusNormal, "")
				return nil
			})
		}
		loop.Dialer{Codec: ws, TLS: ws.TLS()}.Dial(bots.Loops()[0], ws.Addr(), open)
		fmt.Println(<-said)
	}
	cancel()
	fmt.Println(bots.Wait(), gateway.Wait())
	// Output:
	// refused: 401 who are you?
	//
	// you said hello
	// <nil> <nil>
}
