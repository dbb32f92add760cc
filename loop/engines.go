package loop

import (
	"fmt"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// An Engine does the network I/O of a Server. Handlers behave the same on every Engine.
type Engine uint8

const (
	// EngineDefault is EngineGnet on Linux, macOS and the BSDs, and EngineNet elsewhere.
	EngineDefault Engine = iota

	// EngineGnet is gnet: each loop is one of its event loops, each connection one of its
	// connections, and its OnTick advances the loop's wheel. Where gnet does not run, Start returns
	// an error.
	EngineGnet

	// EngineEpoll uses Linux epoll directly, without gnet. A waiting loop occupies no processor
	// (P), and UDP datagrams are read and sent in batches. It runs on Linux, but not on 386 and
	// s390x; elsewhere Start returns an error.
	EngineEpoll

	// EngineNet is Go's package net, with one or two goroutines for each connection. It is for
	// systems without another engine, for finding out whether an engine is at fault, and for
	// comparisons.
	EngineNet
)

// engineNames are the names by which tests choose the default.
var engineNames = map[string]Engine{
	"gnet": EngineGnet, "epoll": EngineEpoll, "net": EngineNet,
}

// makeEngine has the engines that this system has.
var makeEngine = map[Engine]func(log zerolog.Logger) engine.Engine{
	EngineNet: func(zerolog.Logger) engine.Engine { return netengine.New() },
}

// newEngine returns the engine that s is to have.
func (s *Server) newEngine() (engine.Engine, error) {
	e := s.Engine
	if name := testhook.DefaultEngine(); e == EngineDefault && name != "" {
		if e = engineNames[name]; e == EngineDefault {
			return nil, fmt.Errorf("loop: there is no engine %q", name)
		}
	}
	if e == EngineDefault {
		if e = EngineGnet; makeEngine[e] == nil {
			e = EngineNet
		}
	}
	if makeEngine[e] == nil {
		name := map[Engine]string{EngineGnet: "EngineGnet", EngineEpoll: "EngineEpoll"}[e]
		return nil, fmt.Errorf("loop: Server.Engine is %s, which this system does not have: leave it EngineDefault", name)
	}
	return makeEngine[e](s.Logger), nil
}
