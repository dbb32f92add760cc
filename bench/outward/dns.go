package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// dnsRecords are what is asked for.
var dnsRecords = []string{"x.test. 300 IN A 192.0.2.1", "x.test. 300 IN AAAA 2001:db8::1", "x.test. 300 IN MX 10 mail.test.",
	`x.test. 300 IN TXT "one" "two"`, "alias.test. 300 IN CNAME x.test."}

// dnsMiekg is a plain server by miekg/dns that has its answers in a map.
func dnsMiekg() {
	answers := make(map[dns.Question][]dns.RR)
	for _, s := range dnsRecords {
		rr := must(dns.NewRR(s))
		h := rr.Header()
		answers[dns.Question{Name: h.Name, Qtype: h.Rrtype, Qclass: h.Class}] = []dns.RR{rr}
	}
	pc := must(net.ListenPacket("udp", "127.0.0.1:0"))
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if m.Answer = answers[q.Question[0]]; m.Answer == nil {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	fmt.Println(pc.LocalAddr())
	go func() { check(s.ActivateAndServe()) }()
	untilInputEnds()
}

// startForwarder runs demos/dns, which asks upstream once and has the answers in its cache then.
func startForwarder(program, upstream string) *process {
	cmd := exec.Command(program, "-addr", "udp://127.0.0.1:0", "-upstream", upstream, "-loops", "1")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p := run(cmd)
	p.addr = regexp.MustCompile(`udp://(\S+) and`).FindStringSubmatch(p.addr)[1]
	p.in = closer(func() { _ = cmd.Process.Signal(os.Interrupt) })
	return p
}

// benchDNS is dnsperf asking for what is in the cache.
func benchDNS() {
	if _, err := exec.LookPath("dnsperf"); err != nil {
		check(fmt.Errorf("dnsperf is not installed (Debian: apt-get install dnsperf): %w", err))
	}
	dir := must(os.MkdirTemp("", "outward"))
	defer os.RemoveAll(dir)
	program, questions := filepath.Join(dir, "dns"), filepath.Join(dir, "questions")
	build := exec.Command("go", "build", "-C", "../demos", "-o", program, "./dns") // from bench/
	build.Stderr = os.Stderr
	check(build.Run())
	var list strings.Builder
	for _, s := range dnsRecords {
		f := strings.Fields(s)
		fmt.Fprintln(&list, f[0], f[3])
	}
	check(os.WriteFile(questions, []byte(list.String()), 0o600))
	upstream := start("dns-miekg")
	defer upstream.stop()
	compare("a DNS query by dnsperf, 10 clients", []string{"miekg", "loopwheel"}, func(name string) float64 {
		var p *process
		if name == "miekg" {
			p = start("dns-miekg")
		} else {
			p = startForwarder(program, upstream.addr)
		}
		defer p.stop()
		dnsperf(p.addr, questions, 0.2)
		begun := p.cpu()
		n := dnsperf(p.addr, questions, 2)
		return float64((p.cpu() - begun).Nanoseconds()) / 1e3 / n
	})
}

// dnsperf asks for so many seconds and returns how many queries were answered.
func dnsperf(addr, questions string, seconds float64) float64 {
	host, port, _ := net.SplitHostPort(addr)
	out := must(exec.Command("dnsperf", "-s", host, "-p", port, "-d", questions, "-l", fmt.Sprint(seconds), "-c", "10").CombinedOutput())
	m := regexp.MustCompile(`Queries completed: *(\d+) \(100.00%\)`).FindSubmatch(out)
	if m == nil {
		check(fmt.Errorf("dnsperf: not every query was answered:\n%s", out))
	}
	return must(strconv.ParseFloat(string(m[1]), 64))
}
