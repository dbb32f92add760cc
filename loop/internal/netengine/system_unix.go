//go:build unix

package netengine

import (
	"context"
	"math"
	"net"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

func listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	if network == "unix" {
		return unixsock.Listen(ctx, lc, address)
	}
	return lc.Listen(ctx, network, address)
}

// capacity is the limit of open files, less what the program itself needs.
func capacity() int {
	n := math.MaxInt32
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		n = int(min(uint64(lim.Cur), math.MaxInt32))
	}
	return max(1, n-n/16-32)
}
