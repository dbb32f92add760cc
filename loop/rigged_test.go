package loop_test

import (
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// script is a Handler made of functions.
type script = rig.Script

var (
	echo     = rig.Echo
	silent   = rig.Silent
	start    = rig.Start
	dial     = rig.Dial
	mustEcho = rig.MustEcho
	bubble   = rig.Bubble
	wait     = testkit.Pass
)
