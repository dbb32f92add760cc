//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package gnetengine

import "golang.org/x/sys/unix"

// replace closes old and makes its number a copy of fd.
func replace(old, fd int) error {
	if err := unix.Dup2(fd, old); err != nil {
		return err
	}
	unix.CloseOnExec(old)
	return nil
}
