//go:build unix && !linux

package sockets

import "golang.org/x/sys/unix"

// Write implements engine.Socket.
func (d *Descriptor) Write(p []byte) (int, error) {
	n, err := unix.Write(d.FD(), p)
	return max(n, 0), failed("write", err)
}

// Writev implements engine.Socket.
func (d *Descriptor) Writev(bufs [][]byte) (n int, err error) {
	for _, b := range bufs {
		k, err := d.Write(b)
		n += k
		if k < len(b) {
			return n, err
		}
	}
	return n, nil
}

// unsent is not known here.
func unsent(int) int { return -1 }
