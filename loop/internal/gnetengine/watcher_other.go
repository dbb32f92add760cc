//go:build !linux

package gnetengine

import "errors"

// watcher cannot tell here when a socket becomes writable; package loop tries again by its wheel instead.
type watcher struct {
	notify func(*socket)
}

func (*watcher) add(*socket) error { return errors.ErrUnsupported }
func (*watcher) remove(*socket)    {}
func (*watcher) stop()             {}

func unsent(int) int { return -1 }
