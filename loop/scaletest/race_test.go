//go:build race

package scaletest_test

// raceEnabled: the owner checks of these builds allocate.
const raceEnabled = true
