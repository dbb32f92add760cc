package handler_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// backend is the handler of a connection to a server whose answers repeat the id of the request.
type backend struct{ calls *handler.Calls[string] }

func (b *backend) OnMessage(_ *loop.Conn, line []byte) error {
	id, answer, _ := strings.Cut(string(line), " ")
	n, err := strconv.ParseUint(id, 10, 64)
	b.calls.Answer(n, answer) // one that comes too late is nobody's
	return err
}

func (b *backend) OnClose(*loop.Conn, error) {} // calls under way fail by themselves

// Requests over one connection, which may be answered in any order: each has an id, which its
// answer repeats, and a deadline.
func ExampleCalls() {
	shout := func(c *loop.Conn, line []byte) error {
		if strings.HasSuffix(string(line), "silence") {
			return nil
		}
		return c.Send([]byte(strings.ToUpper(string(line))))
	}
	other := &loop.Server{Accept: handler.Shared(loop.HandlerFunc(shout))}
	serve(other, func(func() *client) {
		ended := make(chan string, 2)
		open := func(c *loop.Conn, err error) loop.Handler {
			if err != nil {
				panic(err)
			}
			calls := handler.NewCalls[string](c, handler.CallConfig{})
			ask := func(word string, timeout time.Duration) {
				id, err := calls.Begin(timeout, func(answer string, err error) {
					ended <- fmt.Sprintf("%s: %q, timeout %v", word, answer, errors.Is(err, handler.ErrCallTimeout))
				})
				if err == nil {
					err = c.Send(fmt.Appendf(nil, "%d %s", id, word))
				}
				if err != nil {
					calls.Cancel(id)
					ended <- err.Error()
				}
			}
			ask("silence", 10*time.Millisecond)
			ask("hello", time.Minute)
			return &backend{calls}
		}
		srv := &loop.Server{NumLoops: 1, Accept: other.Accept, OnStart: func(l *loop.Loop) {
			loop.Dialer{Codec: codec.Lines{}}.Dial(l, "tcp://"+other.LocalAddr().String(), open)
		}}
		serve(srv, func(func() *client) {
			fmt.Println(<-ended)
			fmt.Println(<-ended)
		})
	})
	// Unordered output:
	// hello: "HELLO", timeout false
	// silence: "", timeout true
}

// A page on a port of net/http shows what only a loop knows: its goroutine asks an actor, and
// waits.
func ExampleAskWait() {
	type said struct{}
	type howMuch struct{ question handler.Question[int] }
	var counter handler.ActorRef[any]
	srv := &loop.Server{
		OnStart: func(l *loop.Loop) {
			if l.Index() > 0 {
				return
			}
			counter, _ = handler.Spawn(l, func(*handler.Actor[any]) func(any) {
				n := 0
				return func(m any) {
					switch m := m.(type) {
					case said:
						n++
					case howMuch:
						m.question.Answer(n)
					}
				}
			})
		},
		Accept: handler.Shared(loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			if err := counter.Tell(said{}); err != nil {
				return err
			}
			return c.Send(line)
		})),
	}
	page := func(w http.ResponseWriter, r *http.Request) {
		n, err := handler.AskWait(r.Context(), counter, func(question handler.Question[int]) any { return howMuch{question} })
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "%d lines were said\n", n)
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		c.ask("hello")
		c.ask("is anybody there?")
		w := httptest.NewRecorder()
		page(w, httptest.NewRequest("GET", "/", nil))
		body, _ := io.ReadAll(w.Body)
		fmt.Print(string(body))
	})
	// Output: 2 lines were said
}
