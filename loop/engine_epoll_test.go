//go:build linux && !386 && !s390x

package loop_test

import (
	"context"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/epoll"
)

// onEpoll has servers run on the system's own epoll, if it has one.
func onEpoll(ctx context.Context) context.Context { return engine.NewContext(ctx, epoll.New()) }
