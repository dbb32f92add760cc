//go:build linux && !386 && !s390x

package epoll

import "testing"

// A port does not close a second time what a loop has taken: the number may be another's by then.
func TestPortLeavesWhatIsServed(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		port, _ := servePackets(t, r, "udp", "127.0.0.1:0")
		for i, s := range port.(*groupPort).sockets {
			if s != nil {
				t.Errorf("the port would close the socket of loop %d", i)
			}
		}
	})
}
