package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

var good = []dns.RR{rr("n.test. 300 IN A 192.0.2.1")}

// An upstream that fails, in whatever way, makes the forwarder ask another; one that has refused is
// not asked again while there are others, and only when nobody does better is that passed on.
func TestAnotherUpstream(t *testing.T) {
	const mute, plain = -1, -2 // no answer; FORMERR without EDNS, and good without
	for _, c := range []struct {
		say   []int  // what each upstream says
		asked string // who is asked, in order; - without EDNS
		want  int
	}{
		{[]int{dns.RcodeServerFailure, 0}, "01", 0},
		{[]int{dns.RcodeRefused, 0}, "01", 0},
		{[]int{dns.RcodeNotImplemented, 0}, "01", 0},
		{[]int{dns.RcodeFormatError, 0}, "00-1", 0},
		{[]int{mute, 0}, "01", 0},
		{[]int{mute, dns.RcodeRefused, plain}, "0122-", 0},
		{[]int{mute, dns.RcodeNameError}, "01", dns.RcodeNameError},
		{[]int{dns.RcodeRefused}, "0", dns.RcodeRefused},
		{[]int{dns.RcodeRefused, dns.RcodeNotImplemented}, "01", dns.RcodeNotImplemented},
		{[]int{dns.RcodeRefused, mute}, "011", dns.RcodeRefused},
		{[]int{dns.RcodeRefused, dns.RcodeServerFailure}, "011", dns.RcodeServerFailure},
		{[]int{dns.RcodeServerFailure, mute}, "0101", dns.RcodeServerFailure},
	} {
		synctest.Test(t, func(t *testing.T) {
			var addrs []string
			for i := range c.say {
				addrs = append(addrs, fmt.Sprintf("192.0.2.53:%d", i+1))
			}
			srv := startAsking(t, addrs...)
			asked := ""
			for i, code := range c.say {
				srv.UDPBackend(addrs[i], func(msg string) []string {
					asked += fmt.Sprint(i)
					hasEDNS := strings.HasSuffix(msg, opt0)
					if !hasEDNS {
						asked += "-"
					}
					switch {
					case code == mute:
						return nil
					case code == plain && hasEDNS:
						return []string{replyWith(msg, dns.RcodeFormatError, nil, nil)}
					case code == 0 || code == plain:
						return []string{replyWith(msg, 0, good, nil)}
					}
					return []string{replyWith(msg, code, nil, nil)}
				})
			}
			p := srv.OpenUDP(0)
			p.Send(question("n.test.", dns.TypeA, 1))
			srv.Sleep(5 * time.Second)
			if m := next(t, p, 1); m.Rcode != c.want || c.want == 0 && len(m.Answer) != 1 {
				t.Errorf("%v: %v", c.say, m)
			}
			if asked != c.asked {
				t.Errorf("%v: asked %s, want %s", c.say, asked, c.asked)
			}
		})
	}
}

// The upstream that has failed is not the one to be asked first from then on.
func TestFailedUpstreamComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := []string{"192.0.2.53:1", "192.0.2.53:2"}
		srv := startAsking(t, addrs...)
		asked := ""
		srv.UDPBackend(addrs[0], func(string) []string { asked += "0"; return nil })
		srv.UDPBackend(addrs[1], func(msg string) []string { asked += "1"; return []string{replyWith(msg, 0, good, nil)} })
		p := srv.OpenUDP(0)
		for i := range 3 {
			p.Send(question(fmt.Sprintf("n%d.test.", i), dns.TypeA, 1), question(fmt.Sprintf("m%d.test.", i), dns.TypeA, 2))
			srv.Sleep(time.Second)
		}
		if asked != "00111111" {
			t.Errorf("asked %s", asked)
		}
	})
}

// An upstream that fails for one name is asked first for the others all the same.
func TestFailureIsOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addrs := []string{"192.0.2.53:1", "192.0.2.53:2"}
		srv := startAsking(t, addrs...)
		asked, code := "", dns.RcodeRefused
		srv.UDPBackend(addrs[0], func(msg string) []string {
			if asked += "0"; code < 0 {
				return []string{msg[:2] + "\x80\x04" + strings.Repeat("\x00", 8)} // NOTIMP, of whatever
			}
			return []string{replyWith(msg, code, nil, nil)}
		})
		srv.UDPBackend(addrs[1], func(msg string) []string {
			asked += "1"
			return []string{replyWith(msg, 0, good, nil)}
		})
		p := srv.OpenUDP(0)
		ask(t, p, "refused.test.")
		code = dns.RcodeServerFailure
		ask(t, p, "failed.test.")
		code = -1
		ask(t, p, "bare.test.")
		code = dns.RcodeSuccess
		if ask(t, p, "n.test."); asked != "0101010" {
			t.Errorf("asked %s", asked)
		}
	})
}

// What comes without a question is taken only from who has understood nothing: an id is all that
// there is to guess of it.
func TestWithoutQuestion(t *testing.T) {
	for code, taken := range map[byte]bool{
		dns.RcodeSuccess: false, dns.RcodeFormatError: true, dns.RcodeServerFailure: false, dns.RcodeNameError: false,
		dns.RcodeNotImplemented: true, dns.RcodeRefused: false,
	} {
		for _, cut := range []byte{0, 2} {
			asked := 0
			answer := func(msg string) []string {
				asked++
				empty := msg[:2] + string([]byte{0x80 | cut, code}) + strings.Repeat("\x00", 8)
				return []string{empty, replyWith(msg, 0, good, nil)}
			}
			forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
				p := srv.OpenUDP(0)
				p.Send(question("n.test.", dns.TypeA, 1))
				srv.Sleep(3 * time.Second)
				if got, want := asked == 1, !taken || cut != 0; got != want {
					t.Errorf("code %d, %d: asked %d times", code, cut, asked)
				}
			})
		}
	}
}

// What cannot be refreshed is given as it was, also if an upstream answers with a refusal.
func TestStaleInPlaceOfRefusal(t *testing.T) {
	code := dns.RcodeSuccess
	answer := func(msg string) []string { return []string{replyWith(msg, code, good[:1-min(code, 1)], nil)} }
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		ask(t, p, "n.test.")
		code = dns.RcodeRefused
		srv.Sleep(10 * time.Minute)
		if m := ask(t, p, "n.test."); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
			t.Errorf("%v", m)
		}
	})
}

// An answer to something else, or what is no answer, does not end the wait for the one that was
// asked for (RFC 5452).
func TestWrongQuestionIsNoAnswer(t *testing.T) {
	evil := []dns.RR{rr("n.test. 300 IN A 203.0.113.66")}
	for _, other := range []string{question("other.test.", dns.TypeA, 0), question("n.test.", dns.TypeAAAA, 0)} {
		asked := 0
		answer := func(msg string) []string {
			asked++
			no := replyWith(other, 0, evil, nil)
			header := string([]byte{no[2] &^ 2, no[3], 0, 0, 0, 0, 0, 0, 0, 0}) // no question, and no error
			return []string{msg[:2] + no[2:], msg[:2] + header, msg, replyWith(msg, 0, good, nil)}
		}
		forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
			if m := ask(t, srv.OpenUDP(0), "n.test."); len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "192.0.2.1") {
				t.Errorf("%v", m)
			}
		})
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	}
}

// TTLs that nobody can mean are not passed on: neither too long ones, nor negative ones.
func TestTTLsAreCapped(t *testing.T) {
	var records []dns.RR
	for _, ttl := range []uint32{0, 1, maxTTL - 1, maxTTL, maxTTL + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		records = append(records, rr(fmt.Sprintf("n.test. %d IN A 192.0.2.1", ttl)))
	}
	answer := func(msg string) []string { return []string{replyWith(msg, 0, records, nil)} }
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		want := []uint32{0, 1, maxTTL - 1, maxTTL, maxTTL, maxTTL, 0, 0}
		if got := ttls(ask(t, srv.OpenUDP(0), "n.test.")); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
	})
}

// A question of no type leaves nothing in the cache that could answer for all types.
func TestNoTypeIsNotKept(t *testing.T) {
	soa := []dns.RR{rr("test. 300 IN SOA ns.test. root.test. 1 2 3 4 60")}
	answer := func(msg string) []string {
		if strings.Contains(lower(msg), "\x04test\x00\x00\x00") {
			return []string{replyWith(msg, 0, nil, soa)}
		}
		return []string{replyWith(msg, 0, good, nil)}
	}
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		p.Send(question("n.test.", 0, 1))
		p.Received()
		if m := ask(t, p, "n.test."); len(m.Answer) != 1 {
			t.Errorf("%v", m)
		}
	})
}

// cut answers by UDP that there is more by TCP.
func cut(msg string) []string {
	var m dns.Msg
	if err := m.Unpack([]byte(replyWith(msg, 0, nil, nil))); err != nil {
		panic(err)
	}
	m.Truncated = true
	b, _ := m.Pack()
	return []string{string(b)}
}

func framed(msg string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(msg)))) + msg
}

// A TCP connection to an upstream is made when there is something to ask, and let go when there has
// been nothing for a while.
func TestTCPOnDemand(t *testing.T) {
	forwardingTo(t, cut, func(t *testing.T, srv *looptest.Server) {
		tcp := srv.Backend("tcp", upstreamAddr)
		p := srv.OpenUDP(0)
		srv.Sleep(time.Minute)
		if tcp.Accept() != nil {
			t.Fatal("it dials though there is nothing to ask")
		}
		for round := range 2 {
			var up *looptest.Peer
			for i := range 3 { // over one connection
				name := fmt.Sprintf("n%d-%d.test.", round, i)
				p.Send(question(name, dns.TypeA, 1))
				if c := tcp.Accept(); c != nil {
					if up != nil {
						t.Fatal("another connection")
					}
					up = c
				}
				if up == nil {
					t.Fatal("it does not dial")
				}
				asked := up.Received()
				if len(asked) < 14 {
					t.Fatalf("asked %q", asked)
				}
				up.Send(framed(replyWith(asked[2:], 0, []dns.RR{rr(name + " 300 IN A 192.0.2.1")}, nil)))
				if m := next(t, p, 1); len(m.Answer) != 1 {
					t.Errorf("%v", m)
				}
				srv.Sleep(tcpIdle / 2)
			}
			if up.Closed() {
				t.Error("the connection has ended while it was in use")
			}
			if srv.Sleep(tcpIdle + time.Second); !up.Closed() {
				t.Error("the connection stays")
			}
		}
	})
}

// An upstream whose answer is too long for TCP, too, is not asked forever.
func TestCutByTCP(t *testing.T) {
	forwardingTo(t, cut, func(t *testing.T, srv *looptest.Server) {
		tcp := srv.Backend("tcp", upstreamAddr)
		p := srv.OpenUDP(0)
		p.Send(question("n.test.", dns.TypeA, 1))
		up := tcp.Accept()
		n := 0
		for asked := up.Received(); asked != "" && n < 10; asked = up.Received() {
			up.Send(framed(cut(asked[2:])[0]))
			n++
		}
		if m := next(t, p, 1); m.Rcode != dns.RcodeServerFailure || n != 2 {
			t.Errorf("asked %d times, %v", n, m)
		}
	})
}

// A question that is refused does not take those with it that came over the same connection.
func TestRefusalLeavesTheStream(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenTo(1)
		p.Send(framed(question("n.test.", dns.TypeOPT, 1)), framed(question("alias.test.", dns.TypeA, 2)))
		got := p.Received()
		if n := 2 + int(got[0])<<8 + int(got[1]); len(got) < n+14 || got[n+3] != 2 || p.Ended() {
			t.Errorf("%q", got)
		}
	})
}
