package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/loopwheel/loopwheel/internal/clitest"
)

// A wrong command line, and an address that cannot be had, are told in one line.
func TestRefuses(t *testing.T) {
	t.Parallel()
	needed := []string{"-addr", "tcp://127.0.0.1:0"}
	clitest.Refuses(t, "echo", runProcess, needed, map[string]string{"-addr": "tcp://", "-metrics": ""})
}

// runProcess runs the program in a process of its own, as it can be restarted once in each.
func runProcess(ctx context.Context, args []string, out, errOut io.Writer) int {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = out, errOut
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		return 0
	}
	return exit.ExitCode()
}
