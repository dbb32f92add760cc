package main

import (
	"testing"

	"github.com/loopwheel/loopwheel/examples/internal/clitest"
)

// A wrong command line, and an address that is taken, each end the program with one line.
func TestRefuses(t *testing.T) {
	needed := []string{"-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0", "-log", "off"}
	clitest.Refuses(t, "chat", run, needed, map[string]string{"-addr": "tcp://", "-lines": "tcp://", "-metrics": ""})
}
