//go:build unix

package testkit

import "syscall"

// fileLimit returns how many descriptors this process may have.
func fileLimit() int {
	var lim syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim)
	if err != nil || uint64(lim.Cur) > unlimited {
		return unlimited
	}
	return int(lim.Cur)
}
