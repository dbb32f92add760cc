package engine

import "syscall"

// Control is called with a socket before it is bound, or connects, as that of net.ListenConfig and
// net.Dialer is. nil: there is nothing to do.
type Control = func(network, address string, c syscall.RawConn) error
