package loop

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// slowDials is an engine whose attempts fail after a while, in words of their own.
type slowDials struct {
	rigEngine
	after time.Duration
}

var errOwnWords = errors.New("lookup name.test: i/o timeout")

func (e slowDials) Dial(context.Context, net.Dialer, string, string) (net.Conn, error) {
	testkit.Block(e.after)
	return nil, errOwnWords
}

// What fails when the time is over has timed out, though the loop was too busy for its timer, and
// what failed before has not.
func TestDialFailsWhileTheLoopIsBusy(t *testing.T) {
	for after, want := range map[time.Duration]error{
		1010 * time.Millisecond: os.ErrDeadlineExceeded, 990 * time.Millisecond: errOwnWords,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &Server{Limits: Limits{MaxConns: 1}}, HandlerFunc(echoAll))
			r.server.engine = slowDials{after: after}
			var told error
			Dialer{Timeout: time.Second}.Dial(r.Loop, "tcp://name.test:1", func(_ *Conn, err error) Handler {
				told = err
				return nil
			})
			r.turn()
			testkit.Pass(2 * time.Second)
			if r.turn(); !errors.Is(told, want) {
				t.Errorf("failed after %v: told %v, want %v", after, told, want)
			}
		})
	}
}
