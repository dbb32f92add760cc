//go:build linux && !386 && !s390x

package loop_test

import (
	"context"

	"github.com/loopwheel/loopwheel/loop/internal/epoll"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// onEpoll makes servers use EngineEpoll, if the system has epoll.
func onEpoll(ctx context.Context) context.Context { return testhook.WithEngine(ctx, epoll.New()) }
