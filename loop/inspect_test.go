//go:build inspect

package loop

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// planted is a loop with one open connection that has output, one whose peer has ended its output,
// and one that was closed.
type planted struct {
	*rig
	blocked, halfClosed, closed *Conn
}

func newPlanted(t *testing.T) *planted {
	t.Helper()
	p := &planted{rig: newRig(t, &Server{Codec: codec.Lines{}, IdleTimeout: time.Hour}, HandlerFunc(echoAll))}
	blocked, sink, sock := p.connect()
	sock.room = 3
	sink.Readable([]byte("hello\n"))
	halfClosed, sink, _ := p.connect()
	halfClosed.OnEOF(func() {})
	sink.Ended(io.EOF)
	p.blocked, p.halfClosed = blocked, halfClosed
	p.closed, _, _ = p.connect()
	p.closed.Close()
	p.turn()
	if p.halfClosed.in.end != endDelivered || p.blocked.pending() != 3 || !p.closed.isClosed() {
		t.Fatal("the test is not set up as it should be")
	}
	return p
}

// The check finds what is wrong with a loop, and what is wrong with a connection, at the end of the
// next turn.
func TestInspectionFindsFaults(t *testing.T) {
	for _, fault := range []struct {
		name, want string
		plant      func(p *planted)
	}{
		{"none", "", func(*planted) {}},
		{"a closed connection left in the list", "it is in the list", func(p *planted) {
			p.load.Add(1)
			p.add(p.closed)
		}},
		{"a wrong place", "not in its place", func(p *planted) { p.blocked.index++ }},
		{"output that nobody waits for", "nothing is waited for", func(p *planted) { p.blocked.out.box.Blocked = false }},
		{"an idle timer lost", "no timer", func(p *planted) { p.wheel.Stop(p.blocked.idle.timer) }},
		{"a step that must not be", "from state", func(p *planted) { p.halfClosed.setState(stateOpening) }},
		{"a socket paused for nothing", "for no reason", func(p *planted) { p.blocked.in.socketPaused = true }},
		{"a connection that is not counted", "not counted", func(p *planted) { p.load.Add(-1) }},
		{"one that lingers for ever", "without an end", func(p *planted) {
			for _, g := range p.lingering {
				p.wheel.Stop(g.timer)
			}
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			p := newPlanted(t)
			fault.plant(p)
			if got := fmt.Sprint(panicOf(p.turn)); fault.want == "" && got != "<nil>" || !strings.Contains(got, fault.want) {
				t.Errorf("the turn ended with %s, want %q", got, fault.want)
			}
		})
	}
}

// panicOf returns what f panics with, or nil.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}
