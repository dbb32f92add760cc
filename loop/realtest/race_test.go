//go:build race

package realtest_test

// raceEnabled: with the race detector all is several times as slow.
const raceEnabled = true
