package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// TestMain also serves as the program that the tests of mosquitto start: the broker, with a
// configuration file of mosquitto's translated to flags.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "mosquitto" {
		testkit.MainOrTests(m, main)
	}
	args, err := mosquittoFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Args = append(os.Args[:1], args...)
	main()
}

func TestFlags(t *testing.T) {
	testkit.FlagErrors(t, [][]string{
		{`besides the flags: ["x"]`, "x"}, {"-max-keepalive", "-max-keepalive=65536"}, {"-max-inflight", "-max-inflight=65536"}, {"-state", "-addr=tcp://127.0.0.1:0", "-state=/"}, {"-handover", "-addr=tcp://127.0.0.1:0", "-handover=/none/x"}, {"-engine", "-engine=x"}, {`-deny "a/#/b"`, "-deny=a/#/b"}, {`-deny ""`, "-deny=a,"}, {"-users", "-users=/none"},
		{"-cert", "-cert=/none"}, {"-tls", "-tls=tcp://127.0.0.1:0"}, {"-addr nowhere", "-addr=nowhere"}, {"-addr is empty", "-addr="}, {"-state", "-addr=tcp://127.0.0.1:0", "-state=/none/x"}, {"-loops -1", "-addr=tcp://127.0.0.1:0", "-loops=-1"},
		{`-ws "nowhere"`, "-addr=tcp://127.0.0.1:0", "-ws=nowhere"}, {"-metrics", "-addr=tcp://127.0.0.1:0", "-metrics=nowhere"},
	})
}
