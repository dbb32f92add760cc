package handler_test

import (
	"fmt"
	"log"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A server that asks its client something, with a deadline, in a protocol whose answers come in the
// order of the questions.
func ExamplePipeline() {
	accept := func(c *loop.Conn) loop.Handler {
		questions := handler.NewPipeline[string](c, handler.CallConfig{})
		ask := func(question string) {
			_, err := questions.Call(10*time.Second, []byte(question), func(answer string, err error) {
				if err != nil {
					c.CloseWithError(err)
					return
				}
				_ = c.Send([]byte(question + " " + answer + ", I see."))
			})
			if err != nil {
				c.CloseWithError(err)
			}
		}
		ask("Your name?")
		return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error {
			questions.Answer(string(line))
			return nil
		})
	}
	serve(&loop.Server{Accept: accept}, func(dial func() *client) {
		c := dial()
		fmt.Println(c.hear())
		fmt.Println(c.ask("Ada"))
	})
	// Output:
	// Your name?
	// Your name? Ada, I see.
}

// A connection to another server that is dialed again whenever it closes. Messages sent while there
// is no connection are kept.
func ExampleLink() {
	heard := make(chan string, 1)
	collect := loop.HandlerFunc(func(_ *loop.Conn, line []byte) error { heard <- string(line); return nil })
	collector := &loop.Server{Accept: handler.Shared(collect)}
	serve(collector, func(func() *client) {
		reports := handler.LinkConfig{
			Dialer:  loop.Dialer{Codec: codec.Lines{}},
			Addr:    "tcp://" + collector.LocalAddr().String(),
			Accept:  handler.Shared(collect),
			Backlog: 100,
		}
		srv := &loop.Server{NumLoops: 1, Accept: handler.Shared(collect)}
		srv.OnStart = func(l *loop.Loop) {
			link := handler.NewLink(l, reports)
			if err := link.Send([]byte("started")); err != nil {
				log.Print(err)
			}
		}
		serve(srv, func(func() *client) { fmt.Println(<-heard) })
	})
	// Output: started
}

// A connection asks an actor, which may live on another loop, and goes on with the answer on its
// own.
func ExampleAsk() {
	type question struct {
		name     string
		question handler.Question[int]
	}
	var visits handler.ActorRef[question]
	srv := &loop.Server{
		OnStart: func(l *loop.Loop) {
			if l.Index() == 0 {
				visits, _ = handler.Spawn(l, func(*handler.Actor[question]) func(question) {
					seen := make(map[string]int)
					return func(q question) {
						seen[q.name]++
						q.question.Answer(seen[q.name])
					}
				})
			}
		},
		Accept: handler.Shared(loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			name, client := string(line), c.Ref() // c may be gone when the answer comes
			handler.Ask(c.Loop(), visits, 10*time.Second,
				func(r handler.Question[int]) question { return question{name, r} },
				func(n int, err error) {
					if err := client.Send(fmt.Appendf(nil, "%s: visit %d, %v", name, n, err)); err != nil {
						log.Printf("%s has left: %v", name, err)
					}
				})
			return nil
		})),
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		fmt.Println(c.ask("Ada"))
		fmt.Println(c.ask("Ada"))
	})
	// Output:
	// Ada: visit 1, <nil>
	// Ada: visit 2, <nil>
}
