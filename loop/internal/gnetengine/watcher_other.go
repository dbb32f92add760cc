//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package gnetengine

import "errors"

// A watcher cannot tell here when a socket becomes writable, or breaks; package loop tries again by
// its wheel instead.
type watcher struct{}

func (*gnetLoop) watch(*socket, int16) error { return errors.ErrUnsupported }
func (*gnetLoop) unwatch(*socket)            {}
func (*gnetLoop) look()                      {}
func (*watcher) lacks() int                  { return 0 }
func (*watcher) stop()                       {}
