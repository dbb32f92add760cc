//go:build unix && !linux

package sockets

import "golang.org/x/sys/unix"

// Write implements engine.Socket.
func (d *Descriptor) Write(p []byte) (int, error) {
	n, err := unix.Write(d.FD(), p)
	return max(n, 0), failed("write", err)
}

// unsent is not known here.
func unsent(int) int { return -1 }

// Gone is not known here.
func (d *Descriptor) Gone() bool { return false }

func gone(int) bool { return false }
