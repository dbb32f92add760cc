//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/enginetest"
)

var config = enginetest.System(func() engine.Engine { return New(zerolog.Nop()) })

func TestEngine(t *testing.T) { enginetest.Run(t, config) }
