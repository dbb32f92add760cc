//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package loop_test

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gnetengine"
)

// withoutPollers makes servers take the way of systems that lack what Linux has.
func withoutPollers(ctx context.Context) context.Context {
	return engine.NewContext(ctx, gnetengine.NewPlain(zerolog.Nop()))
}
