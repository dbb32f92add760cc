//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"fmt"

	"github.com/rs/zerolog"
)

// A logger logs gnet's errors. gnet has one logger for the whole process, which each new engine
// replaces. Lines below an error are for gnet's developers, and are dropped.
type logger struct{ log zerolog.Logger }

func (logger) Debugf(string, ...any) {}
func (logger) Infof(string, ...any)  {}
func (logger) Warnf(string, ...any)  {}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error().Str("detail", fmt.Sprintf(format, args...)).Msg("the engine reports an error")
}

// Fatalf does not end the process: that is for the program to decide.
func (l logger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }
