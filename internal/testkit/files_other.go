//go:build !unix

package testkit

// fileLimit returns unlimited: this system has no such limit.
func fileLimit() int { return unlimited }
