//go:build race

package handler_test

// raceEnabled: the owner checks of these builds allocate.
const raceEnabled = true
