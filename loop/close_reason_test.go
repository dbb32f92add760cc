package loop_test

import (
	"reflect"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// To close with an error whose methods panic does not end the callback that does so, and OnClose is
// given that error.
func TestCloseWithAHostileError(t *testing.T) {
	for name, hostile := range hostileErrors() {
		var given error
		returned := false
		srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
			return script{Message: func(c *loop.Conn, _ []byte) error {
				c.CloseWithError(hostile)
				returned = true
				return nil
			}, Close: func(_ *loop.Conn, err error) { given = err }}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			if p.Send("x"); !returned || !p.Ended() || reflect.TypeOf(given) != reflect.TypeOf(hostile) {
				t.Errorf("%s: returned: %v; OnClose was given a %T", name, returned, given)
			}
		})
	}
}
