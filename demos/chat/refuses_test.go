package main

import (
	"net"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/clitest"
)

// A wrong command line, and an address that is taken, each end the program with one line.
func TestRefuses(t *testing.T) {
	needed := []string{"-addr", "tcp://127.0.0.1:0", "-lines", "tcp://127.0.0.1:0", "-log", "off"}
	clitest.Refuses(t, "chat", run, needed, map[string]string{"-addr": "tcp://", "-lines": "tcp://", "-metrics": ""})
}

// The flag that is blamed is the one whose address is taken, in whatever form it is written.
func TestBlamesTheFlag(t *testing.T) {
	for _, c := range []struct{ taken, flag, host string }{
		{"127.0.0.1", "-lines", "localhost"}, {"127.0.0.1", "-addr", "localhost"}, {"", "-lines", ""}, {"", "-lines", "0.0.0.0"},
	} {
		ln, err := net.Listen("tcp4", c.taken+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		at := "tcp4://" + net.JoinHostPort(c.host, port)
		other := map[string]string{"-lines": "-addr", "-addr": "-lines"}[c.flag]
		var out, errOut strings.Builder
		code := run(t.Context(), []string{c.flag, at, other, "tcp://127.0.0.1:0", "-log", "off"}, &out, &errOut)
		if got := errOut.String(); code != 1 || !strings.Contains(got, at+" is in use") || !strings.Contains(got, c.flag+" tcp://") {
			t.Errorf("%v: code %d, %q", c, code, got)
		}
	}
}
