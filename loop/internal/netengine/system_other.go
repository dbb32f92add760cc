//go:build !unix

package netengine

import (
	"context"
	"net"
)

func listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	return lc.Listen(ctx, network, address)
}

// capacity is a number that memory has room for: sockets are no files here.
func capacity() int { return 1 << 18 }
