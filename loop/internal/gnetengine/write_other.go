//go:build !linux

package gnetengine

// Write implements engine.Socket. Here system calls go through the C library, as the system wants it.
func (s *socket) Write(p []byte) (int, error) { return s.slowWrite(p) }
