//go:build !unix

package sockets

import (
	"context"
	"net"
	"time"
)

// Listen implements engine.Engine.
func (System) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	return lc.Listen(ctx, network, address)
}

// Capacity implements engine.Engine by a number that memory has room for: sockets are no files
// here.
func (System) Capacity(int) int { return 1 << 18 }

// unacked is not known here.
func unacked(int) int { return -1 }

func gone(int) bool { return false }

func wasReset(int) error { return nil }

// HasInput cannot tell here. The reader gets a moment to say what it has found.
func HasInput(net.Conn) bool {
	time.Sleep(time.Millisecond)
	return false
}
