package realtest_test

import (
	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// script is a Handler made of functions.
type script = rig.Script

var (
	echo          = rig.Echo
	silent        = rig.Silent
	start         = rig.Start
	dial          = rig.Dial
	connect       = rig.Connect
	overTLS       = rig.OverTLS
	secureIfAsked = rig.Secure
	tcpBelow      = rig.TCP
	mustEcho      = rig.MustEcho
	turnsEnd      = rig.TurnsEnd
	needSlow      = testkit.NeedSlow
	needPlain     = rig.NeedPlain
	goroutineID   = rig.GoroutineID
	faultTime     = rig.FaultTime
	ourGoroutines = rig.Goroutines
)
