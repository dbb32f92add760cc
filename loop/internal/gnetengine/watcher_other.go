//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package gnetengine

import "errors"

// watcher cannot tell here when a socket becomes writable, or breaks; package loop tries again by
// its wheel instead.
type watcher struct {
	notify func(*socket)
}

func (*watcher) add(*socket, int16) error { return errors.ErrUnsupported }
func (*watcher) remove(*socket)           {}
func (*watcher) stop()                    {}
