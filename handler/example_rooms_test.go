package handler_test

import (
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// Messages to a room. A visitor is identified by its Ref, so entering twice counts once.
type (
	enters struct {
		who      loop.Ref
		question handler.Question[int]
	}
	leaves struct{ who loop.Ref }
)

// A hall has rooms by name.
type hall struct {
	mu    sync.Mutex
	rooms map[string]handler.ActorRef[any]
}

// room returns the one with that name, or makes it on l.
func (h *hall) room(l *loop.Loop, name string) (handler.ActorRef[any], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.rooms[name]; ok {
		return r, nil
	}
	r, err := handler.Spawn(l, func(a *handler.Actor[any]) func(any) {
		a.OnStop(func(error) { h.forget(name, a.Ref()) })
		here := make(map[loop.Ref]bool)
		return func(m any) {
			switch m := m.(type) {
			case enters:
				here[m.who] = true
				m.question.Answer(len(here))
			case leaves:
				if delete(here, m.who); len(here) == 0 {
					a.Stop()
				}
			}
		}
	})
	if err == nil {
		h.rooms[name] = r
	}
	return r, err
}

func (h *hall) forget(name string, r handler.ActorRef[any]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms[name] == r { // and not the next one
		delete(h.rooms, name)
	}
}

// enter sends c to a room. If the room stops first, it drops the message, but Ask reports
// ErrStopped, and enter asks the next room.
func (h *hall) enter(c *loop.Conn, name string) error {
	r, err := h.room(c.Loop(), name)
	if err != nil {
		return err
	}
	who := c.Ref()
	handler.Ask(c.Loop(), r, time.Second,
		func(question handler.Question[int]) any { return enters{who, question} },
		func(n int, err error) {
			if errors.Is(err, handler.ErrStopped) {
				h.forget(name, r) // it may not have come to that yet
				err = h.enter(c, name)
			} else if err == nil {
				err = c.Send(fmt.Appendf(nil, "you are number %d in the %s", n, name))
			}
			if err != nil {
				c.CloseWithError(err)
			}
		})
	c.AfterClose(func(error) {
		if err := r.Tell(leaves{who}); err != nil && !errors.Is(err, handler.ErrStopped) {
			log.Print(err)
		}
	})
	return nil
}

// Rooms that are made when somebody comes, and stop when the last one has left.
func ExampleAsk_onDemand() {
	h := &hall{rooms: make(map[string]handler.ActorRef[any])}
	srv := &loop.Server{
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, room []byte) error { return h.enter(c, string(room)) })
		},
	}
	serve(srv, func(dial func() *client) {
		ann, bob, cid := dial(), dial(), dial()
		fmt.Println(ann.ask("library"))
		fmt.Println(bob.ask("library"))
		fmt.Println(cid.ask("kitchen"))
	})
	fmt.Println(len(h.rooms), "rooms are left")
	// Output:
	// you are number 1 in the library
	// you are number 2 in the library
	// you are number 1 in the kitchen
	// 0 rooms are left
}
