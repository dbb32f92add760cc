//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package loop

import (
	"errors"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// systemEngine is what EngineDefault means here.
const systemEngine = EngineNet

func newGnet(zerolog.Logger) (engine.Engine, error) {
	return nil, errors.New("loop: Server.Engine is EngineGnet, which this system does not have: leave it EngineDefault")
}
