//go:build !unix

package sockets

import (
	"context"
	"net"
)

// Listen implements engine.Engine.
func (Network) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	return lc.Listen(ctx, network, address)
}

// Capacity implements engine.Engine by a number that memory has room for: sockets are no files
// here.
func (Network) Capacity(int) int { return 1 << 18 }

// unsent is not known here.
func unsent(int) int { return -1 }

func gone(int) bool { return false }

func wasReset(int) error { return nil }
