package exampletest

import (
	"context"
	"os/exec"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// An error of a flag, or of an argument that nobody asked for, names it.
func TestFlags(t *testing.T) {
	t.Setenv("GATEWAY_KEY", "")
	for name, rows := range map[string][][]string{
		"chat": {{"-addr", "-addr=nowhere"}, {"-addr is empty", "-addr="}, {"-addr", "-addr=tcp://127.0.0.1:99999"}, {`unexpected arguments: ["x"]`, "x"}},
		"echo": {{"-addr", "-addr=nowhere"}, {"-addr is empty", "-addr="}, {"-idle -1s", "-idle=-1s"}, {`unexpected arguments: ["x"]`, "x"}},
		"gateway": {
			{`unexpected arguments: ["x"]`, "-open", "x"}, {"-addr nowhere", "-open", "-addr=nowhere"}, {"-addr is empty", "-open", "-addr="},
			{"-http nowhere", "-open", "-addr=tcp://127.0.0.1:0", "-http=nowhere"},
			{"-metrics nowhere", "-open", "-addr=tcp://127.0.0.1:0", "-http=127.0.0.1:0", "-metrics=nowhere"},
			{"-pid", "-open", "-addr=tcp://127.0.0.1:0", "-http=127.0.0.1:0", "-pid=/none/x"},
			{"-tls-cert", "-open", "-addr=tcp://127.0.0.1:0", "-tls-cert=/none"},
		},
		"match": {{"-addr", "-addr=nowhere"}, {"-addr is empty", "-addr="}, {`unexpected arguments: ["x"]`, "x"}},
		"proxy": {
			{"-to"}, {"-to", "-to=nowhere"}, {"-to", "-to=a:65536"}, {"-to", "-to=a:0"}, {"-to", "-to=a:1,b:-1"}, {"-nosuch", "-nosuch"},
			{"-idle -1s", "-to=a:1", "-idle=-1s"}, {"-connect 0s", "-to=a:1", "-connect=0"}, {"-drain 0s", "-to=a:1", "-drain=0"},
			{"-check -1s", "-to=a:1", "-check=-1s"}, {`argument "x"`, "-to=a:1", "x"}, {"-addr", "-to=a:1", "-addr=nowhere"}, {"-addr", "-to=a:1", "-addr="}, {`-addr "udp:`, "-to=a:1", "-addr=udp://127.0.0.1:0"},
			{"-accept-proxy", "-to=a:1", "-accept-proxy=everybody"}, {"-accept-proxy", "-to=a:1", "-accept-proxy=10.0.0.0/33"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.FlagErrorsOf(t, func(ctx context.Context, args ...string) *exec.Cmd {
				return exec.CommandContext(ctx, built(name), args...)
			}, rows)
		})
	}
}
