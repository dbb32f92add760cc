//go:build unix

package handover

import (
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A Successor is a process that takes over, of which a test carries out each step.
type Successor struct {
	t *testing.T
	*taking
}

// The messages that a test waits for.
const (
	Rehearse = rehearse
	Batch    = batch
	Over     = over
)

// Restart does what a signal of RestartOn does.
func Restart(h *Handover) { h.restart() }

// Begin starts the Server of a Handover that has found a process in charge, and says ready.
func Begin(t *testing.T, h *Handover) *Successor {
	t.Helper()
	if err := h.srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &Successor{t, h.from}
	s.closeItems()
	s.started(s)
	return s
}

// Until goes on until a message of this kind has come, which it leaves to Got.
func (s *Successor) Until(k kind) message {
	s.t.Helper()
	for {
		m := testkit.Receive(s.t, "a message of the process in charge", s.line.in)
		if m.kind == k {
			return m
		}
		s.Got(m)
	}
}

// Got does what follows from a message.
func (s *Successor) Got(m message) {
	s.got(m)
	if s.phase == deciding {
		s.decide(s)
	}
	if s.phase == telling {
		s.tell(s)
	}
}

// Retired waits until the process in charge has ended the line. It must not send anything before.
func (s *Successor) Retired() {
	s.t.Helper()
	if m := testkit.Receive(s.t, "the end of the line", s.line.in); m.kind != noMessage {
		s.t.Errorf("the process in charge sends message %d, want the end of the line", m.kind)
	}
}

// SpendReserve frees the descriptors in reserve, as for a process that meets a full one.
func (h *Handover) SpendReserve() { h.freeReserve() }

// HasReserve reports whether no descriptor of the reserve is missing.
func (h *Handover) HasReserve() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.reserve) == keepFiles
}

// Die ends the line, as the end of the process would.
func (s *Successor) Die() { s.line.hang() }

// Stop stops to accept newcomers, as a process that is stopped.
func (s *Successor) Stop() { s.h.acceptNewcomers(false) }

// Stayed returns how many connections did not move, by reason.
func (s *Successor) Stayed() map[string]int { return s.report.Stayed }

// HidePeers has the system tell no numbers of processes, as macOS and FreeBSD.
func HidePeers() {
	askPeer = func(fd int) (uid, pid int, err error) {
		uid, _, err = peerOf(fd)
		return uid, 0, err
	}
}

// Refuse is a process in charge that hands over its meeting socket, and then refuses. It has ended
// when it returns.
func Refuse(ln *net.UnixListener) error {
	defer ln.Close()
	nc, err := ln.AcceptUnix()
	if err != nil {
		return err
	}
	l := newLine(nc)
	defer l.hang()
	if _, err = l.read(maxHello); err == nil {
		err = l.write(message{kind: item, body: []byte(meetName)}, ln, time.Now().Add(time.Minute))
	}
	if err == nil {
		err = l.write(message{kind: refuse}, nil, time.Now().Add(time.Minute))
	}
	return err
}
