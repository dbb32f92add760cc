package gnetengine

import "golang.org/x/sys/unix"

// replace closes old and makes its number a copy of fd.
func replace(old, fd int) error { return unix.Dup3(fd, old, unix.O_CLOEXEC) }
