//go:build unix

package gnetengine

import (
	"context"
	"net"
)

// Races implements engine.Racer.
func (e *Engine) Races(loop int) bool { return e.loops[loop].poll != nil }

// Dial implements engine.Connector.
func (*Engine) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	return d.DialContext(ctx, network, address)
}
