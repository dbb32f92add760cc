package loop_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// The name of this machine means two addresses; a server listens on one of them.
func TestDialRacesFamilies(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", listen)
		if err != nil {
			t.Skip("no IPv6 here: ", err)
		}
		defer ln.Close()
		ips, _ := net.LookupIP("localhost")
		if len(ips) < 2 && strings.HasPrefix(listen, "[") {
			t.Skip("localhost has one address")
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		bothEngines(t, func(t *testing.T, ctx context.Context) {
			client := &loop.Server{NumLoops: 1}
			startWith(t, ctx, client)
			begun := time.Now()
			d := loop.Dialer{Timeout: patience}
			o := dialOn(t, d, client.Loops()[0], "tcp://localhost:"+port)
			if o.err != nil {
				t.Fatal(o.err)
			}
			if took := time.Since(begun); took > patience/2 {
				t.Errorf("it took %v", took)
			}
			o = dialOn(t, d, client.Loops()[0], "tcp://localhost:1")
			if o.err == nil || !strings.Contains(o.err.Error(), "refused") {
				t.Errorf("where nobody listens: %v", o.err)
			}
		})
	}
}
