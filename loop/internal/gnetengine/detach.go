//go:build unix

package gnetengine

import "net"

// Detach implements engine.Detachable. What gnet reads it hands over at once, so it has nothing.
func (s *socket) Detach() (net.Conn, []byte, error) {
	nc, err := s.netConn()
	if err != nil {
		return nil, nil, err
	}
	s.Close(false) // the copy goes on
	return nc, nil, nil
}
