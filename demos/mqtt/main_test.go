package main

import (
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestMain(m *testing.M) { testkit.MainOrTests(m, main) }

func TestFlags(t *testing.T) {
	testkit.FlagErrors(t, [][]string{
		{`besides the flags: ["x"]`, "x"}, {"-max-keepalive", "-max-keepalive=65536"}, {"-engine", "-engine=x"}, {"-users", "-users=/none"},
		{"-cert", "-cert=/none"}, {"-tls", "-tls=tcp://127.0.0.1:0"}, {"-addr nowhere", "-addr=nowhere"}, {"-loops -1", "-addr=tcp://127.0.0.1:0", "-loops=-1"},
		{`-ws "nowhere"`, "-addr=tcp://127.0.0.1:0", "-ws=nowhere"}, {"-metrics", "-addr=tcp://127.0.0.1:0", "-metrics=nowhere"},
	})
}
