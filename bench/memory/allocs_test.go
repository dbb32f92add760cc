package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 1
	os.Exit(m.Run())
}

// A real server allocates nothing for a message that it echoes, by its heap profile: with the idle
// timeout on, several connections, messages in pieces. What gnet allocates now and then, such as a
// list of events of another size, is not ours.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	const messages = 80_000
	sites, err := steadyAllocs(startLoopwheel, messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sites {
		t.Logf("%d, %.5f per message: %s", s.count, s.perMessage(messages), s.where)
		if s.perMessage(messages) >= 0.001 && !strings.HasPrefix(s.where, "github.com/panjf2000/gnet") {
			t.Errorf("%d allocations for %d messages: %s", s.count, messages, s.where)
		}
	}
}
