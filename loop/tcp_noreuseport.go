//go:build illumos || solaris

package loop

import "errors"

func setReusePort(int) error { return errors.ErrUnsupported }
