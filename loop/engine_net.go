//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package loop

import (
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
)

func (*Server) newEngine() engine.Engine { return netengine.New() }
