//go:build unix

package gnetengine

import "github.com/rs/zerolog"

// logger writes gnet's messages to zerolog. gnet has one logger for the whole process, which each
// new engine replaces; and what it says below an error is for those who work on gnet.
type logger struct{ log zerolog.Logger }

func (l logger) Debugf(format string, args ...any) { l.log.Trace().Msgf("gnet: "+format, args...) }
func (l logger) Infof(format string, args ...any)  { l.log.Debug().Msgf("gnet: "+format, args...) }
func (l logger) Warnf(format string, args ...any)  { l.log.Debug().Msgf("gnet: "+format, args...) }
func (l logger) Errorf(format string, args ...any) { l.log.Error().Msgf("gnet: "+format, args...) }

// Fatalf does not end the process: that is for the program to decide.
func (l logger) Fatalf(format string, args ...any) { l.log.Error().Msgf("gnet: "+format, args...) }
