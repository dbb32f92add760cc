//go:build !unix

package handover

import (
	"context"
	"errors"

	"github.com/loopwheel/loopwheel/loop"
)

// Take starts srv: on this system there is nobody to take over from.
func Take(ctx context.Context, srv *loop.Server, cfg Config) (Report, error) {
	if err := cfg.fill(); err != nil {
		return Report{}, err
	}
	return Report{}, srv.Start(ctx)
}

// An Offer is what Listen returns.
type Offer struct{}

// Listen returns errors.ErrUnsupported: this system cannot hand sockets to another process.
func Listen(*loop.Server, Config) (*Offer, error) { return nil, errors.ErrUnsupported }

// Done returns nil: nothing ever comes of it.
func (*Offer) Done() <-chan struct{} { return nil }

// Close does nothing.
func (*Offer) Close() error { return nil }
