package loop_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Each peer gets the reason for which its connection closes.
func ExampleServer_onClosing() {
	client, stop := serve(&loop.Server{
		Codec: codec.Lines{},
		Hooks: loop.Hooks{OnClosing: func(c *loop.Conn, err error) {
			if err != nil {
				_ = c.Send([]byte("bye: " + err.Error()))
			}
		}},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				if string(line) == "hello" {
					return c.Send(line)
				}
				return errors.New("I do not know " + string(line)) // closes c
			})
		},
	})
	defer stop()
	fmt.Fprint(client, "hello\ngoodbye\n")
	all, err := io.ReadAll(client)
	fmt.Print(string(all), err)
	// Output:
	// hello
	// bye: I do not know goodbye
	// <nil>
}

// Input after a login waits until it is looked up.
func ExampleConn_PauseRead() {
	names := map[string]string{"secret": "Ada"} // a database, say
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		user := ""
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			if user != "" {
				return c.Send([]byte(user + ": " + string(line)))
			}
			c.PauseRead()
			token := string(line) // line is borrowed
			return loop.Offload(c, func(context.Context) string { return names[token] }, func(c *loop.Conn, name string) {
				if user = name; user == "" {
					c.CloseWithError(errors.New("who are you?"))
					return
				}
				c.ResumeRead()
			})
		})
	}})
	defer stop()
	fmt.Fprint(client, "secret\nhello\n")
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	// Output: Ada: hello
}

// Behind a balancer that says who connected: RemoteAddr is the client. List the balancer's
// addresses and nothing else, as who may send such a header may claim to be anybody.
func ExampleServer_proxyProtocol() {
	balancer, stop := serve(&loop.Server{
		Codec:         codec.Lines{},
		ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				return c.Send(fmt.Appendf(nil, "%s from %v", line, c.RemoteAddr()))
			})
		},
	})
	defer stop()
	fmt.Fprint(balancer, "PROXY TCP4 203.0.113.7 198.51.100.1 50123 7000\r\nhello\n")
	line, _ := bufio.NewReader(balancer).ReadString('\n')
	fmt.Print(line)
	// Output: hello from 203.0.113.7:50123
}
