//go:build !linux

package netengine

import "net"

// kernelHas is not known here.
func kernelHas(net.Conn) int { return -1 }
