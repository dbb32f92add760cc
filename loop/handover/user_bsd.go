//go:build darwin || freebsd

package handover

import "golang.org/x/sys/unix"

// peerUser returns the user of the process at the other end of a unix socket.
func peerUser(fd int) (int, error) {
	cred, err := unix.GetsockoptXucred(fd, 0, unix.LOCAL_PEERCRED) // 0 is SOL_LOCAL
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
