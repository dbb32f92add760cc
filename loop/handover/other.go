//go:build !unix

package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/loopwheel/loopwheel/internal/inside"
)

// This file is for systems that cannot hand sockets to another process.

type taking struct {
	bound []inside.Bound
	named map[string]net.Listener
}

func (*taking) take(context.Context) (Report, error) { return Report{}, errors.ErrUnsupported }
func (*taking) giveUp()                              {}
func (*taking) err() error                           { return nil }

type giving struct{ done chan struct{} }

func (*giving) hang() {}

type child struct{}

func (*Handover) meet(context.Context) error {
	return fmt.Errorf("handover: Config.Path: %w on this system", errors.ErrUnsupported)
}

func (*Handover) answer() {}

// RestartOn does nothing on this system.
func (*Handover) RestartOn(...os.Signal) {}

func (*Handover) endChild() {}

func notify() error { return nil }
