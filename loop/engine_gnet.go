//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package loop

import (
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gnetengine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
)

func (s *Server) newEngine() engine.Engine {
	if s.Engine == EngineNet || engine.Default() == engine.Net {
		return netengine.New()
	}
	e := gnetengine.New(s.Logger)
	if engine.Default() == engine.Plain {
		e = gnetengine.NewPlain(s.Logger)
	}
	e.KeepProcs = s.KeepGOMAXPROCS
	return e
}
