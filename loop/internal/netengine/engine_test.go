package netengine

import (
	"testing"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/enginetest"
)

func TestEngine(t *testing.T) {
	enginetest.Run(t, enginetest.System(func() engine.Engine { return New() }))
}
