//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// Detach implements engine.Detachable. The socket has no input left: gnet hands over what it reads
// at once.
func (s *socket) Detach() (net.Conn, []byte, error) {
	nc, err := sockets.Conn(s.FD())
	if err != nil {
		return nil, nil, err
	}
	s.Close(false) // the copy goes on
	return nc, nil, nil
}
