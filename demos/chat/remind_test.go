package main

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// With Redis, a reminder outlives the server, and reaches who asked for it at another.
func TestRemindAfterRestart(t *testing.T) {
	m := miniredis.RunT(t)
	srv, stop := serveShared(t, testOptions(), m.Addr())
	nc := dialLines(t, srv)
	nc.say("/nick dora")
	nc.hears(" is now dora")
	nc.say("/remind 3s feed the cat")
	nc.hears("in 3s")
	stop()
	srv, _ = serveShared(t, testOptions(), m.Addr())
	nc = dialLines(t, srv)
	nc.say("/nick dora")
	nc.hears(" is now dora")
	nc.hears("reminder: feed the cat")
	if keys := strings.Join(m.Keys(), " "); strings.Contains(keys, ":body") {
		t.Logf("left: %s", keys)
	}
}
