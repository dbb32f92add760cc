//go:build unix

package sockets

import (
	"context"
	"math"
	"net"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

// Listen implements engine.Engine.
func (Network) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	if network == "unix" {
		return unixsock.Listen(ctx, lc, address)
	}
	return lc.Listen(ctx, network, address)
}

// Capacity implements engine.Engine by the limit of open files. Some of that is left for loops,
// listeners, logs and the program's own files, and a share for sockets that are being accepted,
// which may have two descriptors for a moment.
func (Network) Capacity(loops int) int {
	n := math.MaxInt32
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		n = int(min(uint64(lim.Cur), math.MaxInt32))
	}
	return max(1, n-n/16-32-10*loops)
}
