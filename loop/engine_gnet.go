//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package loop

import (
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gnetengine"
)

func init() {
	makeEngine[EngineGnet] = func(log zerolog.Logger) engine.Engine { return gnetengine.New(log) }
}
