//go:build race

package goroutine

// Race says that this is a build with the race detector.
const Race = true
