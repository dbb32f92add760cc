//go:build unix && !linux && !darwin && !freebsd

package handover

import "errors"

// peerUser cannot tell.
func peerUser(int) (int, error) { return 0, errors.ErrUnsupported }
