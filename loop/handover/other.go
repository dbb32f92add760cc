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

// RestartOn starts the program's file again, with the arguments and the environment of this
// process, at each of the signals, such as SIGHUP. The file may contain another version by then.
// The new process takes over by itself. If it does not call Open within Config.StartTimeout it is
// killed; another signal, from 5 s after its start on, kills it and starts another one. RestartOn
// returns at once; call it once.
func (*Handover) RestartOn(...os.Signal) {}

func notify() error { return nil }
