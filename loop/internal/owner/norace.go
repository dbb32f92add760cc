//go:build !race

package owner

// EveryCall says that each call is looked at: this is not a build with the race detector.
const EveryCall = false
