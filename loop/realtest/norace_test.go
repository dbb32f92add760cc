//go:build !race

package realtest_test

const raceEnabled = false
