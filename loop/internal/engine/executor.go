package engine

import "errors"

// ErrEnded says that a loop takes nothing any more.
var ErrEnded = errors.New("loop: the event loop has ended")

// An Executor is what parts of an engine that several engines share need of a loop.
type Executor interface {
	// Execute runs f on the loop, unless that has ended. Any goroutine may call it.
	Execute(f func())

	// Ended returns a channel that is closed when the loop has ended.
	Ended() <-chan struct{}
}
