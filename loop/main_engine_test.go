package loop

import "os"

// LOOPWHEEL_ENGINE=net runs the tests on the engine of systems that gnet does not run on.
func init() {
	if os.Getenv("LOOPWHEEL_ENGINE") == "net" {
		defaultEngine = EngineNet
	}
}
