package main

import (
	"testing"

	"github.com/loopwheel/loopwheel/internal/clitest"
)

// A wrong command line, and an address that cannot be had, are told in one line.
func TestRefuses(t *testing.T) {
	clitest.Refuses(t, "kv", run, nil, map[string]string{"-addr": "tcp://"})
}
