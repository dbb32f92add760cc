package handler_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// serve runs a line server on a free port while f talks to it.
func serve(srv *loop.Server, f func(dial func() *client)) {
	srv.Addr, srv.Codec = "tcp://127.0.0.1:0", codec.Lines{}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		log.Fatal(err)
	}
	var clients []*client
	f(func() *client {
		c, err := net.Dial("tcp", srv.LocalAddr().String())
		if err != nil {
			log.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		clients = append(clients, &client{c, bufio.NewReader(c)})
		return clients[len(clients)-1]
	})
	for _, c := range clients {
		_ = c.Close()
	}
	cancel()
	if err := srv.Wait(); err != nil {
		log.Fatal(err)
	}
}

// A client speaks lines.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (c *client) say(line string) { fmt.Fprintln(c, line) }

// hear returns the next line, or "" if the server has closed the connection.
func (c *client) hear() string {
	line, _ := c.in.ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}

func (c *client) ask(line string) string {
	c.say(line)
	return c.hear()
}

// Middlewares are put around the handlers where the server is put together; the first is the
// outermost.
func ExampleChain() {
	upper := func(c *loop.Conn, line []byte) error {
		return c.Send([]byte(strings.ToUpper(string(line))))
	}
	srv := &loop.Server{
		Accept: handler.Chain(
			handler.Shared(loop.HandlerFunc(upper)),
			handler.Log{},
			handler.Limit{PerSecond: 100},
			handler.Heartbeat{Interval: 30 * time.Second, Message: []byte("PING")},
		),
	}
	serve(srv, func(dial func() *client) {
		fmt.Println(dial().ask("hello"))
	})
	// Output: HELLO
}

// A custom middleware: it wraps Accept, so it can refuse, and keep state for each connection.
func ExampleMiddlewareFunc() {
	var banned = "192.0.2.7"
	ban := handler.MiddlewareFunc(func(next loop.Accept) loop.Accept {
		return func(c *loop.Conn) loop.Handler {
			if host, _, _ := net.SplitHostPort(c.RemoteAddr().String()); host == banned {
				return nil
			}
			return next(c)
		}
	})
	number := handler.MiddlewareFunc(func(next loop.Accept) loop.Accept {
		return func(c *loop.Conn) loop.Handler {
			inner := next(c)
			if inner == nil {
				return nil
			}
			n := 0
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				n++
				return inner.OnMessage(c, fmt.Appendf(nil, "%d: %s", n, msg))
			})
		}
	})
	srv := &loop.Server{Accept: handler.Chain(handler.Shared(loop.HandlerFunc(echo)), ban, number)}
	serve(srv, func(dial func() *client) {
		c := dial()
		fmt.Println(c.ask("hello"))
		fmt.Println(c.ask("again"))
	})
	// Output:
	// 1: hello
	// 2: again
}

// A handler without state serves all connections.
func ExampleShared() {
	srv := &loop.Server{Accept: handler.Shared(loop.HandlerFunc(echo))}
	serve(srv, func(dial func() *client) {
		fmt.Println(dial().ask("hello"), dial().ask("hi"))
	})
	// Output: hello hi
}

// Requests come as lines of JSON, and so do the replies.
func ExampleJSON() {
	type request struct{ A, B int }
	type reply struct{ Sum int }

	var (
		requests = handler.JSON[request]()
		replies  = handler.JSON[reply]()
	)
	requests.Invalid = func(c *loop.Conn, _ []byte, err error) error {
		return c.Send([]byte(`{"Error":"bad request"}`))
	}
	srv := &loop.Server{
		Accept: requests.Func(func(c *loop.Conn, r request) error {
			return replies.Send(c, reply{r.A + r.B})
		}),
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		fmt.Println(c.ask(`{"A": 1, "B": 2}`))
		fmt.Println(c.ask(`one and two`))
	})
	// Output:
	// {"Sum":3}
	// {"Error":"bad request"}
}

// Any format will do. A TypedHandler has state, as a loop.Handler has.
func ExampleTyped() {
	words := handler.Typed[[]string]{
		Decode: func(msg []byte) ([]string, error) { return strings.Fields(string(msg)), nil },
		Append: func(dst []byte, words []string) ([]byte, error) {
			return append(dst, strings.Join(words, " ")...), nil
		},
	}
	srv := &loop.Server{
		Accept: func(*loop.Conn) loop.Handler { return words.Handler(&memory{words: words}) },
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		fmt.Println(c.ask("remember  this"))
		fmt.Println(c.ask("and that"))
	})
	// Output:
	// remember this
	// remember this and that
}

// memory is the TypedHandler of ExampleTyped.
type memory struct {
	words handler.Typed[[]string]
	all   []string
}

func (m *memory) OnMessage(c *loop.Conn, words []string) error {
	m.all = append(m.all, words...)
	return m.words.Send(c, m.all)
}

func (m *memory) OnClose(*loop.Conn, error) {}

// One line for each connection that opens and closes, and why, here also for each message.
func ExampleLog() {
	untilBye := func(c *loop.Conn, line []byte) error {
		if string(line) == "bye" {
			c.Close()
		}
		return nil
	}
	srv := &loop.Server{
		Accept: handler.Chain(
			handler.Shared(loop.HandlerFunc(untilBye)),
			handler.Log{Level: zerolog.InfoLevel, Messages: true, MessageLevel: zerolog.InfoLevel},
		),
		Logger: zerolog.New(zerolog.ConsoleWriter{
			Out:           os.Stdout,
			NoColor:       true,
			PartsExclude:  []string{zerolog.TimestampFieldName},
			FieldsExclude: []string{"remote", "local", "loop", "age"}, // they differ each time
		}).Level(zerolog.InfoLevel),
	}
	serve(srv, func(dial func() *client) {
		dial().ask("bye")
	})
	// Output:
	// INF open conn=1
	// INF message conn=1 len=3 msg=bye
	// INF closed conn=1 reason=close
}

// A silent peer is pinged, and closed when it leaves two pings unanswered.
func ExampleHeartbeat() {
	reason := make(chan error, 1)
	srv := &loop.Server{
		Accept: handler.Chain(
			func(c *loop.Conn) loop.Handler {
				c.AfterClose(func(err error) { reason <- err })
				return loop.HandlerFunc(echo)
			},
			handler.Heartbeat{Interval: 20 * time.Millisecond, Message: []byte("PING")},
		),
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		for line := c.hear(); line != ""; line = c.hear() {
			fmt.Println(line)
		}
		fmt.Println(<-reason)
	})
	// Output:
	// PING
	// PING
	// handler: heartbeat missed (loop: idle timeout): nothing received for 60ms
}

// Devices that report each minute on their own, as in MQTT, are gone after one and a half.
func ExampleHeartbeat_expectOnly() {
	srv := &loop.Server{
		Accept: handler.Chain(
			handler.Shared(loop.HandlerFunc(echo)),
			handler.Heartbeat{Interval: 90 * time.Second, Missed: 1},
		),
	}
	serve(srv, func(dial func() *client) { fmt.Println(dial().ask("21.5 degrees")) })
	// Output: 21.5 degrees
}

// A peer may send three messages at once, and one per minute in the long run. The fourth is
// answered with a complaint.
func ExampleLimit() {
	srv := &loop.Server{
		Accept: handler.Chain(
			handler.Shared(loop.HandlerFunc(echo)),
			handler.Limit{
				PerSecond: 1. / 60,
				Burst:     3,
				Drop:      true,
				Exceeded:  func(c *loop.Conn, _ []byte) { _ = c.Send([]byte("not so fast")) },
			},
		),
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		for _, line := range []string{"one", "two", "three", "four"} {
			fmt.Println(c.ask(line))
		}
	})
	// Output:
	// one
	// two
	// three
	// not so fast
}
