package main

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

const opt0 = "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"

// What cannot be answered is told why at once, and asked of nobody; answers are not answered.
func TestRefused(t *testing.T) {
	plain := question("x.test.", dns.TypeA, 7)
	plain = plain[:11] + "\x00" + plain[12:len(plain)-len(opt0)]
	head := func(flags, questions, answers, additional int, rest string) string {
		b := []byte(plain[:2])
		for _, n := range []int{flags, questions, answers, 0, additional} {
			b = binary.BigEndian.AppendUint16(b, uint16(n))
		}
		return string(b) + rest
	}
	asked := plain[12:]
	of := func(qtype uint16) string {
		return string(binary.BigEndian.AppendUint16([]byte(asked[:len(asked)-4]), qtype)) + asked[len(asked)-2:]
	}
	for name, c := range map[string]struct {
		msg  string
		want int // -1: nothing
	}{
		"as it should be":         {head(0x100, 1, 0, 1, asked+opt0), dns.RcodeSuccess},
		"no EDNS":                 {head(0x100, 1, 0, 0, asked), dns.RcodeSuccess},
		"an option":               {head(0x100, 1, 0, 1, asked+opt0[:10]+"\x05\xfd\xe9\x00\x01x"), dns.RcodeSuccess},
		"something behind EDNS":   {head(0x100, 1, 0, 2, asked+opt0+"\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00"), dns.RcodeSuccess},
		"EDNS behind something":   {head(0x100, 1, 0, 2, asked+"\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00"+opt0), dns.RcodeSuccess},
		"EDNS 1":                  {head(0x100, 1, 0, 1, asked+opt0[:6]+"\x01"+opt0[7:]), dns.RcodeBadVers},
		"EDNS 255, behind":        {head(0x100, 1, 0, 2, asked+"\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00"+opt0[:6]+"\xff"+opt0[7:]), dns.RcodeBadVers},
		"EDNS twice":              {head(0x100, 1, 0, 2, asked+opt0+opt0), dns.RcodeFormatError},
		"EDNS among the answers":  {head(0x100, 1, 1, 0, asked+opt0), dns.RcodeFormatError},
		"EDNS of a name":          {head(0x100, 1, 0, 1, asked+"\x01a"+opt0), dns.RcodeFormatError},
		"an option that is cut":   {head(0x100, 1, 0, 1, asked+opt0[:10]+"\x05\xfd\xe9\x00\x01"), dns.RcodeFormatError},
		"EDNS that is cut":        {head(0x100, 1, 0, 1, asked+opt0[:9]), dns.RcodeFormatError},
		"EDNS that is not there":  {head(0x100, 1, 0, 1, asked), dns.RcodeFormatError},
		"two questions":           {head(0x100, 2, 0, 0, asked+asked), dns.RcodeFormatError},
		"no question":             {head(0x100, 0, 0, 0, ""), dns.RcodeFormatError},
		"a question that is cut":  {head(0x100, 1, 0, 0, asked[:len(asked)-1]), dns.RcodeFormatError},
		"a notification":          {head(0x2400, 1, 0, 0, asked), dns.RcodeNotImplemented},
		"an update":               {head(0x2800, 1, 0, 0, asked), dns.RcodeNotImplemented},
		"an unknown opcode":       {head(0x7800, 0, 0, 0, ""), dns.RcodeNotImplemented},
		"no type":                 {head(0x100, 1, 0, 0, of(0)), dns.RcodeFormatError},
		"of type OPT":             {head(0x100, 1, 0, 1, of(dns.TypeOPT)+opt0), dns.RcodeFormatError},
		"of type NXNAME":          {head(0x100, 1, 0, 0, of(dns.TypeNXNAME)), dns.RcodeFormatError},
		"of type TSIG":            {head(0x100, 1, 0, 1, of(dns.TypeTSIG)+opt0), dns.RcodeFormatError},
		"of type IXFR":            {head(0x100, 1, 0, 0, of(dns.TypeIXFR)), dns.RcodeRefused},
		"of type AXFR":            {head(0x100, 1, 0, 1, of(dns.TypeAXFR)+opt0), dns.RcodeRefused},
		"of type MAILB":           {head(0x100, 1, 0, 0, of(dns.TypeMAILB)), dns.RcodeNotImplemented},
		"of type MAILA":           {head(0x100, 1, 0, 0, of(dns.TypeMAILA)), dns.RcodeNotImplemented},
		"of type ANY":             {head(0x100, 1, 0, 0, of(dns.TypeANY)), dns.RcodeSuccess},
		"of a type to come":       {head(0x100, 1, 0, 0, of(65280)), dns.RcodeSuccess},
		"an answer":               {head(0x8100, 1, 0, 0, asked), -1},
		"an answer with an error": {head(0x8101, 0, 0, 0, ""), -1},
		"a header that is cut":    {plain[:11], -1},
	} {
		forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
			udp, tcp := srv.OpenUDP(0), srv.OpenTo(1)
			udp.Send(c.msg)
			tcp.Send(string(binary.BigEndian.AppendUint16(nil, uint16(len(c.msg)))) + c.msg)
			got, stream := udp.Received(), tcp.Received()
			if c.want < 0 {
				if len(got) != 0 || stream != "" {
					t.Errorf("%s: %q by UDP, %q by TCP", name, got, stream)
				}
				return
			}
			if len(got) != 1 || len(stream) < 2 || stream[2:] != got[0] {
				t.Fatalf("%s: %q by UDP, %q by TCP", name, got, stream)
			}
			var m dns.Msg
			if err := m.Unpack([]byte(got[0])); err != nil || m.Id != 7 || !m.Response || m.Rcode != c.want || m.Opcode != int(c.msg[2]>>3) {
				t.Errorf("%s: %v, %v", name, err, &m)
			}
			if opt := m.IsEdns0(); c.want == dns.RcodeBadVers && (opt == nil || opt.Version() != 0) {
				t.Errorf("%s: %v", name, &m)
			}
			if n := z.asked.Load(); n > 0 != (c.want == dns.RcodeSuccess) {
				t.Errorf("%s: upstream was asked %d times", name, n)
			}
			if c.want != dns.RcodeSuccess && len(got[0]) > len(c.msg)+len(opt0) {
				t.Errorf("%s: an answer of %d bytes to %d", name, len(got[0]), len(c.msg))
			}
		})
	}
}

// That there is no such name answers for each type (RFC 2308, section 5). That there is nothing of
// a type, or no name at the end of a chain, does not.
func TestNoNameOfAnyType(t *testing.T) {
	soa := []dns.RR{rr("test. 300 IN SOA ns.test. root.test. 1 2 3 4 60")}
	for _, c := range []struct {
		rcode  int
		answer []dns.RR
		asked  int
	}{
		{dns.RcodeNameError, nil, 1},
		{dns.RcodeNameError, []dns.RR{rr("n.test. 300 IN CNAME gone.test.")}, 3},
		{dns.RcodeSuccess, nil, 3},
	} {
		asked := 0
		answer := func(msg string) []string {
			asked++
			return []string{replyWith(msg, c.rcode, c.answer, soa)}
		}
		forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
			p := srv.OpenUDP(0)
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeMX, dns.TypeA} {
				p.Send(question("n.test.", qtype, 1))
				if m := next(t, p, 1); m.Rcode != c.rcode || m.Question[0].Qtype != qtype {
					t.Errorf("%v", m)
				}
			}
		})
		if asked != c.asked {
			t.Errorf("%+v: asked %d times", c, asked)
		}
	}
}

// An upstream that knows no EDNS is asked without (RFC 6891, section 6.2.2), and what it says of
// itself, that it is the authority, is not what we are.
func TestUpstreamWithoutEDNS(t *testing.T) {
	asked := 0
	answer := func(msg string) []string {
		asked++
		if strings.HasSuffix(msg, "\x00\x00\x00\x00\x00") { // its OPT record
			return []string{msg[:2] + "\x80\x01" + strings.Repeat("\x00", 8)}
		}
		var m dns.Msg
		if err := m.Unpack([]byte(replyWith(msg, 0, []dns.RR{rr("n.test. 300 IN A 192.0.2.1")}, nil))); err != nil {
			panic(err)
		}
		m.Authoritative, m.Zero = true, true
		b, _ := m.Pack()
		return []string{string(b)}
	}
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		for range 2 {
			if m := ask(t, p, "n.test."); len(m.Answer) != 1 || m.Authoritative || m.Zero {
				t.Errorf("%v", m)
			}
		}
	})
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
