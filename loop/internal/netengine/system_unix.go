//go:build unix

package netengine

import (
	"context"
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
	const unlimited = 1 << 20
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || uint64(lim.Cur) > unlimited {
		return unlimited
	}
	n := int(lim.Cur)
	return max(1, n-n/16-32)
}
