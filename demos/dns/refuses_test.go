package main

import (
	"testing"

	"github.com/loopwheel/loopwheel/internal/clitest"
)

// A wrong command line, and an address that cannot be had, are told in one line.
func TestRefuses(t *testing.T) {
	clitest.Refuses(t, "dns", run, []string{"-upstream", "127.0.0.1:1"}, map[string]string{"-addr": "udp://"})
}
