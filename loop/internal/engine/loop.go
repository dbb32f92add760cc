package engine

import "errors"

// ErrEnded says that a loop takes nothing any more.
var ErrEnded = errors.New("loop: the event loop has ended")

// A Loop is what parts of an engine need of an event loop.
type Loop interface {
	// Execute has f run on the loop, unless that has ended. Any goroutine may call it.
	Execute(f func())

	// Ended returns a channel that is closed when the loop has ended.
	Ended() <-chan struct{}
}
