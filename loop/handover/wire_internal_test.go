//go:build unix

package handover

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// The error of a message that was late tells a process that does not read from one that had no time
// for that.
func TestWhoIsLate(t *testing.T) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: testkit.SocketPath(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for had, none := range map[time.Duration]bool{-time.Second: true, 300 * time.Millisecond: false} {
		nc, err := net.DialUnix("unix", nil, ln.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		l := newLine(nc)
		err = l.write(message{kind: stateData, body: make([]byte, 8<<20)}, nil, time.Now().Add(had))
		if !errors.Is(err, errLate) || strings.Contains(err.Error(), "in the 0s that were left") != none {
			t.Errorf("with %v: got %v; want errLate, and how much of that was left", had, err)
		}
		l.hang()
	}
}
