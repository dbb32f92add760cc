//go:build !unix

package netengine

import (
	"context"
	"net"
	"time"
)

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, network, address)
}

// capacity is a number that memory has room for: sockets are no files here.
func capacity() int { return 1 << 18 }

// inKernel cannot be seen here. The reader gets a moment to say what it has found.
func inKernel(net.Conn) bool {
	time.Sleep(time.Millisecond)
	return false
}
