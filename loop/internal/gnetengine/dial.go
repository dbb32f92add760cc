//go:build unix

package gnetengine

import (
	"context"
	"net"
)

// Races implements engine.Racer.
func (e *Engine) Races(loop int) bool { return e.loops[loop].poll != nil }

// Dial implements engine.Connector.
func (*Engine) Dial(ctx context.Context, network, address string, local net.Addr) (net.Conn, error) {
	d := net.Dialer{LocalAddr: local}
	return d.DialContext(ctx, network, address)
}
