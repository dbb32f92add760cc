package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// forwardingTo is forwarding with an upstream of the test's own.
func forwardingTo(t *testing.T, answer func(msg string) []string, f func(t *testing.T, srv *looptest.Server)) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, _ *zone) {
		srv.UDPBackend(upstreamAddr, answer)
		f(t, srv)
	})
}

// replyWith answers a question with records.
func replyWith(msg string, rcode int, answer, authority []dns.RR) string {
	var q, m dns.Msg
	if err := q.Unpack([]byte(msg)); err != nil {
		panic(err)
	}
	m.SetRcode(&q, rcode)
	m.Answer, m.Ns = answer, authority
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Whatever an upstream sends that is no answer to what it was asked reaches neither a client nor
// the cache.
func TestHostileAnswers(t *testing.T) {
	evil := []dns.RR{rr("alias.test. 300 IN A 203.0.113.66")}
	good := []dns.RR{rr("alias.test. 300 IN A 192.0.2.1")}
	other := question("other.test.", dns.TypeA, 0)
	for name, spoil := range map[string]func(msg, evil string) string{
		"another id":       func(_, evil string) string { return string([]byte{evil[0] ^ 1}) + evil[1:] },
		"a question":       func(_, evil string) string { return evil[:2] + string(evil[2]&^0x80) + evil[3:] },
		"another question": func(msg, _ string) string { return msg[:2] + replyWith(other, 0, evil, nil)[2:] },
		"another type": func(_, evil string) string {
			at := strings.Index(lower(evil), "\x04test\x00\x00\x01")
			return evil[:at] + evil[at:at+6] + "\x00\x1c" + evil[at+8:]
		},
		"cut":               func(_, evil string) string { return evil[:len(evil)-3] },
		"a header":          func(_, evil string) string { return evil[:12] },
		"less than that":    func(_, evil string) string { return evil[:3] },
		"nothing":           func(_, _ string) string { return "" },
		"names in a circle": func(_, evil string) string { return evil[:12] + "\xc0\x0c" + evil[14:] },
	} {
		t.Run(name, func(t *testing.T) {
			hostile := true
			answer := func(msg string) []string {
				if hostile {
					return []string{spoil(msg, replyWith(msg, 0, evil, nil))}
				}
				return []string{replyWith(msg, 0, good, nil)}
			}
			forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
				p := srv.OpenUDP(0)
				p.Send(question("alias.test.", dns.TypeA, 1))
				srv.Sleep(3 * time.Second)
				if m := next(t, p, 1); m.Rcode != dns.RcodeServerFailure || len(m.Answer) != 0 {
					t.Errorf("%v", m)
				}
				hostile = false
				srv.Sleep(failFor)
				if m := ask(t, p, "alias.test."); len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), "192.0.2.1") {
					t.Errorf("%v", m)
				}
				if st := srv.Stats(); st.Panics != 0 {
					t.Errorf("%d panics", st.Panics)
				}
			})
		})
	}
}

// A question that refers to itself, or is longer than names are, is refused with a header, and not
// asked upstream.
func TestHostileQuestions(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		head := question("x.test.", dns.TypeA, 1)[:11] + "\x00"
		p.Send(head+"\xc0\x0c\x00\x01\x00\x01", head+"\x01a\xc0\x0c\x00\x01\x00\x01", head+"\x01a\xc0\x00\x00\x01\x00\x01")
		p.Send(head + strings.Repeat("\x01a", 127) + "\x01a\x00\x00\x01\x00\x01") // 257 bytes
		srv.Sleep(time.Minute)
		got := p.Received()
		if len(got) != 4 || z.asked.Load() != 0 {
			t.Errorf("%q, asked %d times", got, z.asked.Load())
		}
		for _, m := range got {
			if m != "\x00\x01\x81\x81\x00\x00\x00\x00\x00\x00\x00\x00" { // FORMERR
				t.Errorf("%q", m)
			}
		}
		p.Send(head + strings.Repeat("\x01a", 127) + "\x00\x00\x01\x00\x01") // 255
		if srv.Sleep(time.Minute); len(p.Received()) != 1 || z.asked.Load() == 0 {
			t.Error("the longest of names is not asked for")
		}
	})
}

// What nobody could answer is not asked again for a while.
func TestFailuresAreKept(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		for name, fail := range map[string]func(bool){"nobody answers": z.mute.Store, "SERVFAIL": z.down.Store} {
			fail(true)
			before := z.asked.Load()
			p.Send(question("n.test.", dns.TypeA, 1))
			srv.Sleep(2 * time.Second)
			p.Received()
			for range 10 {
				if m := ask(t, p, "n.test."); m.Rcode != dns.RcodeServerFailure {
					t.Errorf("%s: %v", name, m)
				}
			}
			if asked := z.asked.Load() - before; asked != 2 {
				t.Errorf("%s: asked %d times", name, asked)
			}
			fail(false)
			srv.Sleep(failFor)
			if m := ask(t, p, "n.test."); m.Rcode != dns.RcodeSuccess {
				t.Errorf("%s, and then: %v", name, m)
			}
			srv.Sleep(2 * time.Hour) // what was answered is no longer kept
		}
	})
}

// What is not there is kept for as long as the SOA record says, also at the end of a chain of
// CNAMEs, and not at all without one.
func TestNegativeAnswersLast(t *testing.T) {
	chain := []dns.RR{rr("n.test. 300 IN CNAME m.test."), rr("m.test. 300 IN CNAME gone.test.")}
	soa := []dns.RR{rr("test. 300 IN SOA ns.test. root.test. 1 2 3 4 60")}
	for _, c := range []struct {
		rcode          int
		answer, author []dns.RR
		kept           time.Duration
	}{
		{dns.RcodeNameError, chain, soa, time.Minute},
		{dns.RcodeNameError, chain, nil, 0},
		{dns.RcodeNameError, nil, nil, 0},
		{dns.RcodeSuccess, nil, soa, time.Minute},
		{dns.RcodeSuccess, nil, []dns.RR{rr("test. 300 IN NS ns.test.")}, 0},
		{dns.RcodeSuccess, []dns.RR{rr("n.test. 4294967295 IN A 192.0.2.1")}, nil, 0},
		{dns.RcodeSuccess, []dns.RR{rr("n.test. 2000000000 IN A 192.0.2.1")}, nil, maxTTL * time.Second},
		{dns.RcodeRefused, nil, soa, failFor}, // RFC 9520
		{dns.RcodeNotImplemented, nil, nil, failFor},
	} {
		asked := 0
		answer := func(msg string) []string {
			asked++
			return []string{replyWith(msg, c.rcode, c.answer, c.author)}
		}
		forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
			p := srv.OpenUDP(0)
			for range 2 {
				if m := ask(t, p, "n.test."); m.Rcode != c.rcode || len(m.Answer) != len(c.answer) {
					t.Errorf("%v", m)
				}
			}
			want := 1
			if c.kept == 0 {
				want = 2
			}
			if asked != want {
				t.Errorf("%+v: asked %d times at once", c, asked)
			}
			srv.Sleep(c.kept - time.Second)
			ask(t, p, "n.test.")
			srv.Sleep(time.Second)
			if c.kept > 0 && asked != 1 {
				t.Errorf("%+v: asked %d times before its time", c, asked)
			}
			if ask(t, p, "n.test."); c.kept > 0 && asked != 2 {
				t.Errorf("%+v: asked %d times after it", c, asked)
			}
		})
	}
}

// A full cache lets one answer go for each that comes, and a loop asks so much upstream and no
// more.
func TestBounds(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		for range 2 {
			for i := range 1500 { // of 1000
				ask(t, p, fmt.Sprintf("n%d.test.", i))
			}
		}
		if asked := z.asked.Load(); asked < 2000 || asked > 3000 {
			t.Errorf("asked %d times for twice 1500 names", asked)
		}
		z.mute.Store(true)
		for i := range maxPending + 5 {
			p.Send(question(fmt.Sprintf("m%d.test.", i), dns.TypeA, 3))
		}
		if got := p.Received(); len(got) != maxPending+5-maxAsked {
			t.Errorf("%d were told at once", len(got))
		}
		for i := range maxWaiting + 5 {
			p.Send(question("m1.test.", dns.TypeA, uint16(i)))
		}
		if got := p.Received(); len(got) != 6 { // the first asked before
			t.Errorf("%d who asked the same were told at once", len(got))
		}
	})
}

// What is too long for UDP is asked for by TCP, for which there is a connection then; and clients
// are told to come by TCP, but for those that do.
func TestTooLongForUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := startAsking(t, upstreamAddr)
		srv.UDPBackend(upstreamAddr, func(msg string) []string {
			b := []byte(msg[:12] + string(question("long.test.", dns.TypeA, 0)[12:27]))
			b[2], b[3] = b[2]|0x82, 0 // an answer, cut
			binary.BigEndian.PutUint16(b[10:], 0)
			return []string{string(b)}
		})
		tcp := srv.Backend("tcp", upstreamAddr)
		p := srv.OpenUDP(0)
		p.Send(question("long.test.", dns.TypeA, 1))
		up := tcp.Accept()
		if up == nil {
			t.Fatal("it does not dial")
		}
		srv.Sleep(100 * time.Millisecond)
		asked := up.Received()
		if len(asked) < 14 || int(binary.BigEndian.Uint16([]byte(asked))) != len(asked)-2 {
			t.Fatalf("asked %q", asked)
		}
		var long []dns.RR
		for i := range 100 {
			long = append(long, rr(fmt.Sprintf("long.test. 300 IN A 192.0.2.%d", i)))
		}
		answer := replyWith(asked[2:], 0, long, nil)
		up.Send(string(binary.BigEndian.AppendUint16(nil, uint16(len(answer)))) + answer)
		if m := next(t, p, 1); !m.Truncated || len(m.Answer) != 0 {
			t.Errorf("by UDP: %v", m)
		}
		q := question("long.test.", dns.TypeA, 2)
		c := srv.OpenTo(1)
		c.Send(string(binary.BigEndian.AppendUint16(nil, uint16(len(q)))) + q)
		got := c.Received()
		var m dns.Msg
		if len(got) < 2 || m.Unpack([]byte(got[2:])) != nil || m.Truncated || len(m.Answer) != 100 {
			t.Errorf("by TCP: %d bytes, %v", len(got), &m)
		}
	})
}

// An error of the command line is one line that names the flag.
func TestFlags(t *testing.T) {
	for _, c := range []struct{ flag, value string }{
		{"-addr", "tcp://:1"}, {"-timeout", "0"}, {"-tries", "0"}, {"-cache", "0"}, {"-stale", "-1s"}, {"-clients", "-1"},
		{"-loops", "-1"}, {"-upstream", "nowhere"},
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), []string{"-upstream", "127.0.0.1:1", c.flag, c.value}, &out, &errOut)
		if got := errOut.String(); code != 2 || strings.Count(got, "\n") != 1 || !strings.Contains(got, c.flag) {
			t.Errorf("%s %s: code %d, %q", c.flag, c.value, code, got)
		}
	}
}
