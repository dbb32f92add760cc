package websocket_test

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// Lines on one port, WebSocket and a page on another, and one handler for both.
func Example() {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!doctype html><title>hello</title>")
	})
	echo := func(c *loop.Conn, msg []byte) error { return c.Send(msg) }
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: codec.Lines{},
		Listeners: []loop.Listener{{
			Addr:  "tcp://127.0.0.1:0",
			Codec: &websocket.Codec{Path: "/ws", HTTP: page},
		}},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	r, err := http.Get("http://" + srv.Addrs()[1].String())
	if err == nil {
		fmt.Println(r.Status, r.Header.Get("Content-Type"))
		r.Body.Close()
	}
	cancel()
	fmt.Println(srv.Wait())
	// Output:
	// 200 OK text/html; charset=utf-8
	// <nil>
}

// What a handshake says reaches the handler by OnOpen.
func ExampleConn_onOpen() {
	type user struct {
		loop.HandlerFunc
		name string
	}
	accept := func(c *loop.Conn) loop.Handler {
		u := &user{}
		websocket.Of(c).OnOpen = func(r *http.Request) error {
			if u.name = r.URL.Query().Get("name"); u.name == "" {
				return &websocket.CloseError{Code: 4000, Reason: "no name"}
			}
			return c.Send([]byte("hello " + u.name))
		}
		u.HandlerFunc = func(c *loop.Conn, msg []byte) error {
			return c.Send(fmt.Appendf(nil, "%s: %s", u.name, msg))
		}
		return u
	}
	_ = loop.Server{Addr: "tcp://:8080", Codec: &websocket.Codec{}, Accept: accept}
}

// Who may connect is decided before the handshake is answered: by a cookie, a token, whatever the
// request has.
func ExampleCodec_check() {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0",
		Codec: &websocket.Codec{Upgrade: func(r *http.Request, _ http.Header) error {
			if cookie, err := r.Cookie("session"); err != nil || cookie.Value != "secret" {
				return &websocket.HandshakeError{Status: http.StatusUnauthorized}
			}
			return nil
		}},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, session := range []string{"guess", "secret"} {
		r, _ := http.NewRequest("GET", "http://"+srv.LocalAddr().String(), nil)
		r.Header = http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Cookie": {"session=" + session},
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.Status)
		answer.Body.Close()
	}
	cancel()
	fmt.Println(srv.Wait())
	// Output:
	// 401 Unauthorized
	// 101 Switching Protocols
	// <nil>
}
