package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

const upstreamAddr = "192.0.2.53:53"

// zone answers what is asked under it, and counts that.
type zone struct {
	asked atomic.Int64
	down  atomic.Bool
	mute  atomic.Bool
}

func (z *zone) answer(msg string) []string {
	z.asked.Add(1)
	var q, m dns.Msg
	if q.Unpack([]byte(msg)) != nil || z.mute.Load() {
		return nil
	}
	m.SetReply(&q)
	name := strings.ToLower(q.Question[0].Name)
	switch {
	case z.down.Load():
		m.Rcode = dns.RcodeServerFailure
	case name == "no.test.":
		m.Rcode = dns.RcodeNameError
		m.Ns = append(m.Ns, rr("test. 300 IN SOA ns.test. root.test. 1 2 3 4 60"))
	default:
		m.Answer = append(m.Answer, rr("alias.test. 100 IN CNAME a.test."), rr("a.test. 60 IN A 192.0.2.1"))
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return []string{string(packed)}
}

func rr(s string) dns.RR {
	r, err := dns.NewRR(s)
	if err != nil {
		panic(err)
	}
	return r
}

// forwarding runs the server in memory and virtual time.
func forwarding(t *testing.T, f func(t *testing.T, srv *looptest.Server, z *zone)) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{}
		srv := startAsking(t, upstreamAddr)
		srv.UDPBackend(upstreamAddr, z.answer)
		f(t, srv, z)
	})
}

// startAsking starts the server, in the bubble of a test, with these upstreams.
func startAsking(t *testing.T, upstreams ...string) *looptest.Server {
	o := &options{addr: "udp://127.0.0.1:53", upstreams: upstreams, timeout: time.Second, retries: 2,
		cache: 1000, cacheBytes: 1 << 20, stale: time.Hour, loops: 1}
	return looptest.Start(t, newServer(o, zerolog.Nop()))
}

func question(name string, qtype, id uint16) string {
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.Id = id
	m.SetEdns0(4096, false)
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return string(b)
}

// ask asks, and returns the answer.
func ask(t *testing.T, p *looptest.UDPPeer, name string) *dns.Msg {
	t.Helper()
	p.Send(question(name, dns.TypeA, 7))
	return next(t, p, 7)
}

func next(t *testing.T, p *looptest.UDPPeer, id uint16) *dns.Msg {
	t.Helper()
	got := p.Received()
	if len(got) != 1 {
		t.Fatalf("%d answers", len(got))
	}
	var m dns.Msg
	if err := m.Unpack([]byte(got[0])); err != nil || m.Id != id || !m.Response {
		t.Fatalf("%v, %v", err, &m)
	}
	return &m
}

func ttls(m *dns.Msg) (ttls []uint32) {
	for _, rr := range append(m.Answer, m.Ns...) {
		ttls = append(ttls, rr.Header().Ttl)
	}
	return ttls
}

func TestTTLsInVirtualTime(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		for second := range 130 {
			m := ask(t, p, "aLiaS.test.")
			gone := uint32(second % 60)
			if got := ttls(m); fmt.Sprint(got) != fmt.Sprint([]uint32{100 - gone, 60 - gone}) {
				t.Errorf("after %d s: TTLs %v", second, got)
			}
			if m.Question[0].Name != "aLiaS.test." {
				t.Errorf("the question is %v", m.Question[0])
			}
			if asked := z.asked.Load(); asked != int64(1+second/60) {
				t.Errorf("after %d s: upstream was asked %d times", second, asked)
			}
			srv.Sleep(time.Second)
		}
	})
}

func TestNegativeAnswersAreCached(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		for range 60 {
			if m := ask(t, p, "no.test."); m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 {
				t.Fatalf("%v", m)
			}
			srv.Sleep(time.Second)
		}
		if z.asked.Load() != 1 {
			t.Errorf("asked %d times", z.asked.Load())
		}
		ask(t, p, "no.test.")
		if z.asked.Load() != 2 {
			t.Errorf("asked %d times", z.asked.Load())
		}
	})
}

func TestManyWaitForOneAnswer(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		z.mute.Store(true)
		var peers []*looptest.UDPPeer
		for i := range 50 {
			p := srv.OpenUDP(0)
			p.Send(question("alias.test.", dns.TypeA, uint16(i)))
			peers = append(peers, p)
		}
		z.mute.Store(false)
		srv.Sleep(time.Second) // the second try
		for i, p := range peers {
			if m := next(t, p, uint16(i)); len(m.Answer) != 2 {
				t.Errorf("%v", m)
			}
		}
		if z.asked.Load() != 2 {
			t.Errorf("asked %d times", z.asked.Load())
		}
	})
}

// A client that ends its output behind its questions, as some do, gets all answers, and then the
// end.
func TestAnswersBehindTheEnd(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		z.mute.Store(true)
		p := srv.OpenTo(1)
		for id := range uint16(2) {
			q := question("alias.test.", dns.TypeA, id)
			p.Send(string([]byte{byte(len(q) >> 8), byte(len(q))}) + q)
		}
		p.CloseWrite()
		if p.Received() != "" || p.Ended() {
			t.Fatal("the end was not waited behind")
		}
		z.mute.Store(false)
		srv.Sleep(time.Second) // the second try
		got := p.Received()
		for id := range uint16(2) {
			if len(got) < 2 {
				t.Fatalf("answer %d is missing", id)
			}
			n := 2 + int(got[0])<<8 + int(got[1])
			var m dns.Msg
			if err := m.Unpack([]byte(got[2:n])); err != nil || m.Id != id || len(m.Answer) != 2 {
				t.Errorf("%v, %v", err, &m)
			}
			got = got[n:]
		}
		if !p.Ended() {
			t.Error("the connection stays")
		}
		quick := srv.OpenTo(1)
		q := question("alias.test.", dns.TypeA, 3)
		quick.Send(string([]byte{byte(len(q) >> 8), byte(len(q))}) + q)
		quick.CloseWrite()
		if quick.Received() == "" || !quick.Ended() {
			t.Error("what is known already is not answered, or the connection stays")
		}
	})
}

func TestServeStale(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		ask(t, p, "alias.test.")
		z.down.Store(true)
		srv.Sleep(30 * time.Minute)
		if m := ask(t, p, "alias.test."); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 2 {
			t.Errorf("%v", m)
		}
		z.down.Store(false)
		z.mute.Store(true)
		p.Send(question("alias.test.", dns.TypeA, 9))
		srv.Sleep(2 * time.Second)
		if m := next(t, p, 9); fmt.Sprint(ttls(m)) != "[30 30]" {
			t.Errorf("stale: %v", m)
		}
		srv.Sleep(time.Hour)
		p.Send(question("alias.test.", dns.TypeA, 10))
		srv.Sleep(2 * time.Second)
		if m := next(t, p, 10); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("after the stale time: %v", m)
		}
	})
}

// What is lost on the way is asked again.
func TestBadWeather(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		srv.SetWeather(looptest.Weather{Lost: 20, Duplicated: 20, Reordered: 20, Seed: 16})
		for i := range 200 {
			p.Send(question(fmt.Sprintf("n%d.test.", i), dns.TypeA, uint16(i)))
			srv.Sleep(3 * time.Second)
		}
		srv.SetWeather(looptest.Weather{})
		answered := make(map[uint16]bool)
		for _, msg := range p.Received() {
			var m dns.Msg
			if err := m.Unpack([]byte(msg)); err != nil {
				t.Fatal(err)
			}
			answered[m.Id] = true
		}
		if len(answered) < 100 {
			t.Errorf("%d of 200 got an answer", len(answered))
		}
	})
}

func TestGarbage(t *testing.T) {
	forwarding(t, func(t *testing.T, srv *looptest.Server, z *zone) {
		p := srv.OpenUDP(0)
		whole := question("alias.test.", dns.TypeA, 1)
		for n := range headerLen + 10 {
			p.Send(whole[:n])
		}
		p.Send("", string(bytes.Repeat([]byte{0xff}, 600)), string(append([]byte(whole)[:headerLen], bytes.Repeat([]byte{0xc0}, 9)...)))
		p.Received()
		if m := ask(t, p, "alias.test."); len(m.Answer) != 2 {
			t.Errorf("%v", m)
		}
		if st := srv.Stats(); st.Panics != 0 {
			t.Errorf("%d panics", st.Panics)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	f.Add([]byte(question("alias.test.", dns.TypeA, 1)))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xc0}, 40))
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, key, err := parseQuery(msg, nil)
		if err != nil {
			return
		}
		q.key = string(key)
		for _, b := range [][]byte{appendEmpty(nil, &q, dns.RcodeServerFailure, false), upstreamQuery(&q, q.question, 1, false), upstreamQuery(&q, q.question, 1, true)} {
			if got, _, err := parseQuery(append([]byte{b[0], b[1], b[2] &^ 0x80}, b[3:]...), nil); err != nil || !bytes.Equal(got.question, q.question) {
				t.Errorf("%q became %q: %v", q.question, got.question, err)
			}
		}
		if a, err := parseAnswer(msg, q.question); err == nil {
			appendAnswer(nil, &a, &q, 0, 0)
		}
	})
}
