//go:build unix && (!linux || 386 || s390x)

package gnetengine

// Write implements engine.Socket. Elsewhere than on Linux, system calls go through the C library,
// as the system wants it; and there are architectures where send(2) is not a system call of its
// own, before Linux 4.3.
func (s *socket) Write(p []byte) (int, error) { return slowWrite(s.FD(), p) }
