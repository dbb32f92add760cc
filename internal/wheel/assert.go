//go:build race || timingassert

package wheel

// asserting is true in builds with the race detector or the tag timingassert: then the wheel checks
// its invariants where they hold.
const asserting = true
