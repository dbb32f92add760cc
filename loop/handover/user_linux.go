package handover

import "golang.org/x/sys/unix"

// peerOf returns the user and the number of the process at the other end of a unix socket. The
// number is 0 if the process is in a PID namespace that this one does not see, as in another
// container.
func peerOf(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
