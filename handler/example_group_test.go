package handler_test

import (
	"errors"
	"fmt"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A chat with one room, on all loops.
func ExampleGroup() {
	room := handler.NewGroup(handler.GroupConfig{})
	srv := &loop.Server{
		Accept: func(c *loop.Conn) loop.Handler {
			room.Join(c) // and leaves when it closes
			_ = c.Send([]byte("welcome"))
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				return room.BroadcastExcept(c.Ref(), line)
			})
		},
	}
	serve(srv, func(dial func() *client) {
		ann, bob, cid := dial(), dial(), dial()
		fmt.Println(ann.hear(), bob.hear(), cid.hear(), room.Len())
		ann.say("hello")
		fmt.Println(bob.hear(), cid.hear())
		_ = room.Broadcast([]byte("bye")) // from any goroutine
		fmt.Println(ann.hear(), bob.hear(), cid.hear())
	})
	// Output:
	// welcome welcome welcome 3
	// hello hello
	// bye bye bye
}

// Each runs a function for each member, on the loop of that.
func ExampleGroup_Each() {
	guests := handler.NewGroup(handler.GroupConfig{})
	srv := &loop.Server{
		Accept: func(c *loop.Conn) loop.Handler {
			guests.Join(c)
			_ = c.Send([]byte("come in"))
			return loop.HandlerFunc(echo)
		},
	}
	serve(srv, func(dial func() *client) {
		ann, bob := dial(), dial()
		fmt.Println(ann.hear(), bob.hear())
		_ = guests.Each(func(c *loop.Conn) {
			_ = c.Send([]byte("we are closing"))
			c.Close()
		})
		fmt.Println(ann.hear(), bob.hear())
	})
	// Output:
	// come in come in
	// we are closing we are closing
}

// A broadcast misses a loop that is overloaded; the error tells which, and how many members it has.
func ExampleUnreachedError() {
	room := handler.NewGroup(handler.GroupConfig{})
	srv := &loop.Server{
		NumLoops: 1,
		Limits:   loop.Limits{MaxMailbox: 1},
		Accept: func(c *loop.Conn) loop.Handler {
			room.Join(c)
			_ = c.Send([]byte("welcome"))
			return loop.HandlerFunc(echo)
		},
	}
	serve(srv, func(dial func() *client) {
		dial().hear()
		dial().hear()
		busy, done := make(chan bool), make(chan bool)
		if err := srv.Loops()[0].Post(func() { // what nobody should do
			busy <- true
			<-done
		}); err != nil {
			fmt.Println(err)
			return
		}
		<-busy
		err := room.Broadcast([]byte("hello"))
		if u, ok := errors.AsType[*handler.UnreachedError](err); ok {
			fmt.Println(u.Members, "members:", u.Err)
		}
		close(done)
	})
	// Output: 2 members: loop: mailbox full
}
