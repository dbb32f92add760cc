//go:build illumos || solaris

package sockets

import "errors"

func setReusePort(int) error { return errors.ErrUnsupported }
