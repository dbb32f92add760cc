//go:build race

package owner

// Always says that calls are to be looked at: this is a build with the race detector.
const Always = true
