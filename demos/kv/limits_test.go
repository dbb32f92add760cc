package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// inMemory runs the server in memory and virtual time.
func inMemory(t *testing.T, flags []string, f func(t *testing.T, srv *looptest.Server)) {
	synctest.Test(t, func(t *testing.T) {
		o, err := parse(flags, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		f(t, looptest.Start(t, newServer(o, zerolog.Nop(), func() {}).net))
	})
}

// say sends a line and wants an answer.
func say(t *testing.T, p *looptest.Peer, line, want string) {
	t.Helper()
	p.Send(line + "\r\n")
	if got := p.Received(); got != want {
		t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// A timeout that is set counts for those who are connected, but not for who waits or listens.
func TestTimeoutIsSet(t *testing.T) {
	for _, shards := range []string{"1", "3"} {
		inMemory(t, []string{"-shards", shards}, func(t *testing.T, srv *looptest.Server) {
			silent, busy, listens, waits := srv.Open(), srv.Open(), srv.Open(), srv.Open()
			listens.Send("SUBSCRIBE c\r\n")
			waits.Send("BLPOP {q} 0\r\n")
			srv.Sleep(time.Hour)
			say(t, busy, "CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n")
			say(t, busy, "CONFIG SET timeout 10", "+OK\r\n")
			say(t, busy, "CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$2\r\n10\r\n")
			later := srv.Open()
			for range 3 {
				srv.Sleep(3 * time.Second)
				say(t, busy, "PING", "+PONG\r\n")
			}
			srv.Sleep(900 * time.Millisecond)
			if later.Ended() {
				t.Error("closed before its time")
			}
			srv.Sleep(time.Second)
			if !silent.Ended() || !later.Ended() {
				t.Error("who is silent stays")
			}
			srv.Sleep(5 * time.Second)
			say(t, busy, "RPUSH {q} x", ":1\r\n")
			srv.Sleep(9 * time.Second)
			if waits.Ended() || listens.Ended() {
				t.Error("who waits, or has just been answered, or listens, is closed")
			}
			say(t, busy, "CONFIG SET timeout 0", "+OK\r\n")
			say(t, waits, "PING", "*2\r\n$3\r\n{q}\r\n$1\r\nx\r\n+PONG\r\n")
			if srv.Sleep(time.Hour); waits.Ended() || busy.Ended() {
				t.Error("closed with a timeout of 0")
			}
		})
	}
}

// A timeout of the command line is the same, and is told in whole seconds, never as none.
func TestTimeoutOfTheCommandLine(t *testing.T) {
	inMemory(t, []string{"-timeout", "500ms"}, func(t *testing.T, srv *looptest.Server) {
		p, waits := srv.Open(), srv.Open()
		waits.Send("BLPOP q 0\r\n")
		say(t, p, "CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n1\r\n")
		srv.Sleep(600 * time.Millisecond)
		if !p.Ended() || waits.Ended() {
			t.Errorf("the silent one is closed: %v, the one that waits: %v", p.Ended(), waits.Ended())
		}
	})
}

// A timeout that is set while a loop's mailbox is full counts for its clients, too, a moment later,
// and the old one no more.
func TestTimeoutIsSetInAFullMailbox(t *testing.T) {
	for _, c := range []struct {
		old, now string
		ends     bool
	}{{"0", "10", true}, {"10s", "0", false}} {
		synctest.Test(t, func(t *testing.T) {
			o, err := parse([]string{"-shards", "1", "-timeout", c.old}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(o, zerolog.Nop(), func() {})
			srv := looptest.Start(t, s.net)
			p, l := srv.Open(), s.shards[0].loop
			if err := l.Post(func() {
				for l.Post(func() {}) == nil { // until it is full
				}
				apply, _ := s.prepareTimeout(c.now)
				apply()
			}); err != nil {
				t.Fatal(err)
			}
			if srv.Sleep(11 * time.Second); p.Ended() != c.ends {
				t.Errorf("from %s to %s: ended %v", c.old, c.now, p.Ended())
			}
		})
	}
}

// Another maxclients counts from the next client on.
func TestMaxClientsIsSet(t *testing.T) {
	const refused = "-ERR max number of clients reached\r\n"
	inMemory(t, []string{"-maxclients", "2"}, func(t *testing.T, srv *looptest.Server) {
		one, two := srv.Open(), srv.Open()
		if got := srv.Open().Received(); got != refused {
			t.Errorf("the third of two gets %q", got)
		}
		say(t, one, "CONFIG SET maxclients 3", "+OK\r\n")
		three := srv.Open()
		say(t, three, "PING", "+PONG\r\n")
		say(t, one, "CONFIG SET maxclients 1", "+OK\r\n")
		say(t, two, "PING", "+PONG\r\n")
		two.Close()
		three.Close()
		if got := srv.Open().Received(); got != refused {
			t.Errorf("the second of one gets %q", got)
		}
		one.Send("INFO clients stats\r\n")
		if got := one.Received(); !strings.Contains(got, "connected_clients:1\r") || !strings.Contains(got, "rejected_connections:2\r") {
			t.Errorf("%s", got)
		}
		one.Send("CONFIG SET maxclients 4000000000\r\n")
		if got := one.Received(); !strings.Contains(got, "The operating system is not able to handle the specified number of clients, try with ") {
			t.Errorf("%q", got)
		}
	})
}

// Without a number, or with too large a one, it is what the system allows.
func TestMaxClientsOfTheSystem(t *testing.T) {
	for _, flag := range []string{"0", "4000000000"} {
		inMemory(t, []string{"-maxclients", flag}, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("CONFIG GET maxclients\r\n")
			if got := p.Received(); strings.HasSuffix(got, "\r\n"+flag+"\r\n") {
				t.Errorf("%s: %q", flag, got)
			}
		})
	}
}

// WAIT waits for replicas that never come: as long as it was told, or until somebody unblocks it.
func TestWaitInVain(t *testing.T) {
	inMemory(t, nil, func(t *testing.T, srv *looptest.Server) {
		p, other := srv.Open(), srv.Open()
		say(t, p, "CLIENT ID", ":1\r\n")
		say(t, p, "WAIT 1 1000\r\nPING", "")
		srv.Sleep(990 * time.Millisecond)
		if got := p.Received(); got != "" {
			t.Errorf("before its time: %q", got)
		}
		srv.Sleep(20 * time.Millisecond)
		if got := p.Received(); got != ":0\r\n+PONG\r\n" {
			t.Errorf("%q", got)
		}
		say(t, p, "WAIT 1 9223370000000000\r\nPING", "")
		srv.Sleep(24 * time.Hour)
		say(t, other, "CLIENT UNBLOCK 1", ":1\r\n")
		if got := p.Received(); got != ":0\r\n+PONG\r\n" {
			t.Errorf("%q", got)
		}
		say(t, p, "WAIT 1 1000", "")
		p.Close()
		srv.Sleep(time.Minute)
		if st := srv.Stats(); st.Panics != 0 || st.Conns != 1 {
			t.Errorf("%d panics, %d connections", st.Panics, st.Conns)
		}
	})
}
