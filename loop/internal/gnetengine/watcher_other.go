//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package gnetengine

import "errors"

// A watcher cannot tell here when a socket becomes writable, or breaks; package loop tries again by
// its wheel instead.
type watcher struct{}

func (*eventLoop) watch(*socket, int16) error { return errors.ErrUnsupported }
func (*eventLoop) unwatch(*socket)            {}
func (*eventLoop) look()                      {}
func (*watcher) stop()                        {}
