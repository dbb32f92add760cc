//go:build !race

package goroutine

// Race says that this is not a build with the race detector.
const Race = false
