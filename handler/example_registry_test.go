package handler_test

import (
	"errors"
	"fmt"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// Devices say their number first. A device that comes back is found where it is now, and its old
// connection is closed.
func ExampleRegistry() {
	devices := handler.NewRegistry[string]()
	srv := &loop.Server{
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, id []byte) error {
				old := devices.Enter(string(id), c) // the zero Ref, if the device had no other connection
				if old.Send([]byte("you are elsewhere")) == nil {
					old.CloseWithError(errors.New("logged in elsewhere"))
				}
				return c.Send([]byte("welcome"))
			})
		},
	}
	serve(srv, func(dial func() *client) {
		lamp := dial()
		lamp.say("lamp 7")
		fmt.Println(lamp.hear())
		again := dial()
		again.say("lamp 7")
		fmt.Println(again.hear(), lamp.hear())
		// From any goroutine, such as that of an HTTP handler:
		err := devices.Get("lamp 7").Tell(func(c *loop.Conn) { _ = c.Send([]byte("on")) })
		fmt.Println(again.hear(), err, devices.Len())
		fmt.Println(devices.Get("lamp 8").Tell(func(*loop.Conn) {}))
	})
	// Output:
	// welcome
	// welcome you are elsewhere
	// on <nil> 1
	// loop: connection closed
}
