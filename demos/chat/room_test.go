package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A position comes from the page, and so may be anything.
func TestSince(t *testing.T) {
	r := newRoom("r", "e", 50)
	for range 100 {
		r.number++
		r.history = append(r.history, []byte("x"))
		r.history = r.history[max(0, len(r.history)-50):]
	}
	for _, tt := range []struct {
		since  string
		old    int
		missed bool
	}{
		{"", 50, false}, {"e-100", 0, false}, {"e-90", 10, false}, {"e-50", 50, false}, {"e-49", 50, true}, {"e-0", 50, true},
		{"e-101", 50, true}, {"f-100", 50, true}, {"e", 50, true}, {"e-", 50, true}, {"-", 50, true},
		{"e--1", 50, true}, {fmt.Sprintf("e-%d", math.MinInt), 50, true}, {fmt.Sprintf("e-%d", math.MaxInt), 50, true},
		{"e-99999999999999999999", 50, true},
	} {
		if old, missed := r.since(tt.since); len(old) != tt.old || missed != tt.missed {
			t.Errorf("since %q: %d messages, missed %v; want %d, %v", tt.since, len(old), missed, tt.old, tt.missed)
		}
	}
}

// A room has one timer, however often it is entered and left, and is forgotten an hour after the
// last visit. There are no more rooms than maxLocalRooms.
func TestRoomsAreForgotten(t *testing.T) {
	inMemory(t, func(o *options) { o.idle = 5 * time.Hour }, func(t *testing.T, srv *looptest.Server) {
		m := byLines(t, srv, "ann")
		byLines(t, srv, "bob") // so that somebody is in the lobby
		visit := func() {
			m.say("/join den")
			m.say("/join lobby")
			srv.Sleep(time.Second) // or it is a flood
		}
		visit()
		timers := srv.Stats().Timers
		for range 50 {
			visit()
		}
		if got := srv.Stats().Timers; got > timers {
			t.Errorf("%d more timers for one empty room", got-timers)
		}
		srv.Sleep(remember - 2*time.Minute)
		visit()
		srv.Sleep(3 * time.Minute)
		if got := srv.Stats().Timers; got != timers {
			t.Errorf("%d timers, want %d: the room was entered three minutes ago", got, timers)
		}
		srv.Sleep(remember)
		if got := srv.Stats().Timers; got != timers-1 {
			t.Errorf("%d timers, want %d: the room is not forgotten", got, timers-1)
		}
	})
}
