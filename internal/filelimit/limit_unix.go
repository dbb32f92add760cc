//go:build unix

package filelimit

import "golang.org/x/sys/unix"

// limit returns how many descriptors this process may have.
func limit() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || uint64(lim.Cur) > unlimited {
		return unlimited
	}
	return int(lim.Cur)
}
