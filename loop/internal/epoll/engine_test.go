//go:build linux && !386 && !s390x

package epoll

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/enginetest"
)

var config = enginetest.System(func() engine.Engine { return New() })

func TestEngine(t *testing.T) { enginetest.Run(t, config) }

// start starts an engine of one loop.
func start(t *testing.T) (*enginetest.Rig, *Engine) {
	t.Helper()
	r := enginetest.Start(t, config, 1)
	return r, r.Engine.(*Engine)
}

// bareLoop returns a loop that no goroutine runs.
func bareLoop(t *testing.T, host engine.Host) *eventLoop {
	t.Helper()
	l, err := newLoop(&Engine{host: host}, 0, time.Now())
	t.Cleanup(l.close)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
