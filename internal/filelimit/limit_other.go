//go:build !unix

package filelimit

// limit is none: this system has no such limit.
func limit() int { return unlimited }
