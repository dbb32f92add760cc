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

type giving struct{ done chan struct{} }

func (*giving) hang() {}

type child struct{}

func (*Handover) meet(context.Context) error {
	return fmt.Errorf("handover: Config.Path: %w on this system", errors.ErrUnsupported)
}

func (*Handover) answer() {}

// RestartOn starts the program's file again at each of the signals, such as SIGHUP, with the
// arguments and the environment of this process, in the directory that it was started in. The file
// may be a newer version by then. The new process takes over by itself. It is killed if it takes
// longer than Config.StartTimeout to call Open, or from there to Ready. Another signal kills it and
// starts another if its handover has failed, or if it has not called Open 5 s after its start.
//
// When Run's context is done a signal starts nothing, and a new process that has not taken over is
// killed. Close stops listening for the signals, which then have their usual effect. RestartOn
// returns at once. Call it once.
func (*Handover) RestartOn(...os.Signal) {}

func (*Handover) endChild() {}

func notify() error { return nil }
