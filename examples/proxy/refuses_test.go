package main

import (
	"testing"

	"github.com/loopwheel/loopwheel/internal/clitest"
)

// A wrong command line, and an address that cannot be had, are told in one line.
func TestRefuses(t *testing.T) {
	clitest.Refuses(t, "proxy", run, []string{"-to", "127.0.0.1:1", "-check", "0", "-addr", "tcp://127.0.0.1:0"}, map[string]string{"-addr": "tcp://", "-metrics": ""})
}
