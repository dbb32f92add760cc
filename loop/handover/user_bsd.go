//go:build darwin || freebsd

package handover

import "golang.org/x/sys/unix"

// peerOf returns the user of the process at the other end of a unix socket, and 0 in place of the
// process's number, which the system does not tell in the same way.
func peerOf(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, 0, unix.LOCAL_PEERCRED) // 0 is SOL_LOCAL
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), 0, nil
}
