package handover

import "golang.org/x/sys/unix"

// peerUser returns the user of the process at the other end of a unix socket.
func peerUser(fd int) (int, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
