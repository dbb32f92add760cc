//go:build !race

package scaletest_test

const raceEnabled = false
