//go:build linux && !386 && !s390x

package loop

import (
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/epoll"
)

func newEpoll() (engine.Engine, error) { return epoll.New(), nil }
