//go:build !linux || 386 || s390x

package loop

import (
	"errors"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func newEpoll() (engine.Engine, error) {
	return nil, errors.New("loop: Server.Engine is EngineEpoll, which this system does not have: leave it EngineDefault")
}
