//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package loop

import (
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gnetengine"
)

// systemEngine is what EngineDefault means here.
const systemEngine = EngineGnet

func newGnet(log zerolog.Logger) (engine.Engine, error) { return gnetengine.New(log), nil }
