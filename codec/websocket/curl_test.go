package websocket_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// curl begins with HTTP/2, is refused, and says that the server wants HTTP/1.1.
func TestHTTP2IsRefusedToCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed (apt-get install curl); CI has it")
	}
	if version, _ := exec.Command(curl, "--version").Output(); !strings.Contains(string(version), "HTTP2") {
		t.Skip("this curl speaks no HTTP/2")
	}
	s := start(t, &websocket.Codec{})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, curl, "-sv", "--noproxy", "*", "--http2-prior-knowledge", "http://"+s.LocalAddr().String()+"/").CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed || ctx.Err() != nil {
		t.Errorf("curl ended with %v: %s", err, out)
	}
	if e, ok := errors.AsType[*websocket.HandshakeError](s.reason(t)); !ok || e.Status != 505 {
		t.Errorf("the connection closed with %v", e)
	}
}
