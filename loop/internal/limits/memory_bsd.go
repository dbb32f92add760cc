//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package limits

import (
	"math"

	"golang.org/x/sys/unix"
)

func physical() int64 {
	for _, name := range []string{"hw.memsize", "hw.physmem64", "hw.physmem"} {
		if n, err := unix.SysctlUint64(name); err == nil {
			return int64(min(n, math.MaxInt64))
		}
	}
	return 0
}

func groups(string) int64 { return math.MaxInt64 }
