//go:build !linux

package sockets

// Unsent is not known here.
func Unsent(int) int { return -1 }
