//go:build unix && !linux && !darwin && !freebsd

package handover

import "errors"

// peerOf cannot tell.
func peerOf(int) (uid, pid int, err error) { return 0, 0, errors.ErrUnsupported }
