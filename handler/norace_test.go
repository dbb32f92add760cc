//go:build !race

package handler_test

const raceEnabled = false
