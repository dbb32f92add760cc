package loop_test

import (
	"os"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// LOOPWHEEL_ENGINE=net runs the tests on the engine of systems that gnet does not run on.
func init() { engine.Net = os.Getenv("LOOPWHEEL_ENGINE") == "net" }
