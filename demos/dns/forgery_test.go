package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Who forges an answer has to guess a port, an id and the case of each letter.
func TestQuestionsAreHardToGuess(t *testing.T) {
	upstream, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	const questions = 300
	o := &options{addr: "udp://127.0.0.1:0", upstreams: []string{upstream.LocalAddr().String()}, timeout: 10 * time.Second,
		retries: 1, cache: 1000, cacheBytes: 1 << 20, loops: 1}
	if o.addr, err = fixPort(o.addr); err != nil {
		t.Fatal(err)
	}
	srv := newServer(o, zerolog.Nop())
	ctx, stop := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { stop(); _ = srv.Wait() }()
	client, err := net.Dial("udp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ports, ids, cases := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	buf := make([]byte, 2048)
	deadline := time.Now().Add(time.Minute)
	_ = upstream.SetReadDeadline(deadline)
	_ = client.SetReadDeadline(deadline)
	for i := range questions {
		name := fmt.Sprintf("n%d.averylongnameofmanyletters.test.", i)
		if _, err := io.WriteString(client, question(name, dns.TypeA, 1)); err != nil {
			t.Fatal(err)
		}
		n, from, err := upstream.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		msg := string(buf[:n])
		ports[from.String()], ids[msg[:2]] = true, true
		var m dns.Msg
		if err := m.Unpack([]byte(msg)); err != nil || !strings.EqualFold(m.Question[0].Name, name) {
			t.Fatalf("asked %v, %v", &m, err)
		}
		cases[strings.TrimLeft(m.Question[0].Name, "nN0123456789")] = true
		if _, err := upstream.WriteTo([]byte(replyWith(msg, 0, []dns.RR{rr(name + " 300 IN A 192.0.2.1")}, nil)), from); err != nil {
			t.Fatal(err)
		}
		if n, err = client.Read(buf); err != nil {
			t.Fatal(err)
		}
		if err := m.Unpack(buf[:n]); err != nil || len(m.Answer) != 1 || m.Question[0].Name != name {
			t.Fatalf("answered %v, %v", &m, err)
		}
	}
	if len(ports) < questions*9/10 || len(ids) < questions*9/10 || len(cases) < questions*9/10 {
		t.Errorf("%d ports, %d ids, %d spellings for %d questions", len(ports), len(ids), len(cases), questions)
	}
}

// An answer in another case is not believed: TCP tells what is right.
func TestOtherCaseIsAskedByTCP(t *testing.T) {
	evil := []dns.RR{rr("averylongname.test. 300 IN A 203.0.113.66")}
	answer := func(msg string) []string {
		forged := replyWith(msg, 0, evil, nil)
		return []string{forged[:headerLen] + lower(forged[headerLen:headerLen+20]) + forged[headerLen+20:]}
	}
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		tcp := srv.Backend("tcp", upstreamAddr)
		p := srv.OpenUDP(0)
		p.Send(question("averylongname.test.", dns.TypeA, 1))
		up := tcp.Accept()
		if up == nil {
			t.Fatal("it does not dial")
		}
		asked := up.Received()
		right := replyWith(asked[2:], 0, []dns.RR{rr("averylongname.test. 300 IN A 192.0.2.1")}, nil)
		up.Send(framed(right[:headerLen] + lower(right[headerLen:])))
		if m := next(t, p, 1); len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "192.0.2.1") {
			t.Errorf("%v", m)
		}
	})
}

// An upstream without TCP has an answer that is too long: the client is told to ask by TCP.
func TestTooLongWithoutTCP(t *testing.T) {
	forwardingTo(t, cut, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		p.Send(question("n.test.", dns.TypeA, 1))
		srv.Sleep(5 * time.Second)
		if m := next(t, p, 1); !m.Truncated || m.Rcode != dns.RcodeSuccess {
			t.Errorf("%v", m)
		}
	})
}

// AD goes upstream, and comes back to those who understand it.
func TestAuthenticatedData(t *testing.T) {
	asked := ""
	answer := func(msg string) []string {
		var q, m dns.Msg
		if err := q.Unpack([]byte(msg)); err != nil {
			panic(err)
		}
		asked += fmt.Sprint(q.AuthenticatedData)
		m.SetReply(&q)
		m.AuthenticatedData = true
		m.Answer = good
		b, _ := m.Pack()
		return []string{string(b)}
	}
	forwardingTo(t, answer, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		for _, c := range []struct{ ad, do, want bool }{
			{false, false, false}, {true, false, true}, {false, true, true}, {true, false, true}, {false, false, false},
		} {
			m := new(dns.Msg).SetQuestion("n.test.", dns.TypeA)
			m.Id, m.AuthenticatedData = 1, c.ad
			m.SetEdns0(4096, c.do)
			b, _ := m.Pack()
			p.Send(string(b))
			if got := next(t, p, 1); got.AuthenticatedData != c.want || len(got.Answer) != 1 {
				t.Errorf("AD %v, DO %v: answered with AD %v", c.ad, c.do, got.AuthenticatedData)
			}
		}
	})
	if asked != "falsetruefalse" {
		t.Errorf("asked with AD %s", asked)
	}
}

// The cache is bound in bytes, not only in answers.
func TestCacheBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := looptest.Start(t, newServer(&options{addr: "udp://127.0.0.1:53", upstreams: []string{upstreamAddr}, timeout: time.Second,
			retries: 1, cache: 1000, cacheBytes: 1 << 20, loops: 1}, zerolog.Nop())).Loops()[0]
		done := make(chan struct{})
		_ = l.Post(func() {
			defer close(done)
			c := &cache{loop: l, entries: make(map[string]*entry), max: 1000, maxBytes: 1 << 20}
			for i := range 2000 {
				key := fmt.Sprintf("\x05%05d\x00\x00\x01\x00\x01\x00", i)
				c.put(key, answer{msg: make([]byte, 58<<10), ttl: time.Hour})
				sum := 0
				for k, e := range c.entries {
					sum += e.size(k)
				}
				if sum != c.bytes || sum > c.maxBytes || c.entries[key] == nil {
					t.Fatalf("%d bytes, counted %d", sum, c.bytes)
				}
			}
			if c.put("\x04huge\x00\x00\x01\x00\x01\x00", answer{msg: make([]byte, 2<<20), ttl: time.Hour}); c.bytes > c.maxBytes {
				t.Errorf("%d bytes", c.bytes)
			}
			for k := range c.entries {
				c.drop(k)
			}
			if c.bytes != 0 {
				t.Errorf("%d bytes of nothing", c.bytes)
			}
		})
		<-done
	})
}

// lower is strings.ToLower for bytes of a message, which are no text.
func lower(msg string) string {
	b := []byte(msg)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}
