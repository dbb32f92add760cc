//go:build linux && !386 && !s390x

package loop

import (
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/epoll"
)

func init() {
	makeEngine[EngineEpoll] = func(zerolog.Logger) engine.Engine { return epoll.New() }
}
