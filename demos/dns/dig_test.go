package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// records are one of each kind.
var records = []string{
	"x.test. 300 IN A 192.0.2.1", "x.test. 300 IN AAAA 2001:db8::1", "x.test. 300 IN NS ns.test.", "x.test. 300 IN MX 10 mail.test.",
	`x.test. 300 IN TXT "one" "two \"quoted\""`, "x.test. 300 IN SRV 1 2 443 host.test.", "x.test. 300 IN PTR host.test.",
	"x.test. 300 IN SOA ns.test. root.test. 1 7200 3600 1209600 300", `x.test. 300 IN CAA 0 issue "ca.test"`,
	"x.test. 300 IN DS 60485 5 1 2BB183AF5F22588179A53B0A98631FAD1A292118",
	"x.test. 300 IN DNSKEY 256 3 5 AQPSKmynfzW4kyBv015MUG2DeIQ3Cbl+BBZH4b/0PY1kxkmvHjcZc8nokfzj31GajIQKY+5CptLr3buXA10hWqTkF7H6RfoRqXQeogmMHfpftf6z",
	"x.test. 300 IN TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	"x.test. 300 IN SSHFP 4 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789",
	`x.test. 300 IN NAPTR 100 10 "U" "E2U+sip" "!^.*$!sip:info@test!" .`, `x.test. 300 IN HINFO "cpu" "os"`,
	"x.test. 300 IN LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m", "x.test. 300 IN SVCB 1 svc.test. alpn=h2",
	"x.test. 300 IN HTTPS 1 . alpn=h3,h2", "x.test. 300 IN RP root.test. txt.test.", "x.test. 300 IN DNAME y.test.",
	`x.test. 300 IN URI 10 1 "ftp://ftp.test/public"`, "x.test. 300 IN EUI48 00-00-5e-00-53-2a",
	"x.test. 300 IN TYPE65280 \\# 4 01020304", "alias.test. 300 IN CNAME x.test.",
}

// authority serves them, by miekg/dns.
func authority(t *testing.T) string {
	t.Helper()
	byType := make(map[string][]dns.RR)
	for _, s := range records {
		r := rr(s)
		k := fmt.Sprint(r.Header().Name, r.Header().Rrtype)
		byType[k] = append(byType[k], r)
	}
	for i := range 200 { // too long for UDP
		byType["long.test.16"] = append(byType["long.test.16"], rr(fmt.Sprintf(`long.test. 300 IN TXT "line %d"`, i)))
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Authoritative = true
		if m.Answer = byType[fmt.Sprint(strings.ToLower(q.Question[0].Name), q.Question[0].Qtype)]; m.Answer == nil {
			m.Rcode = dns.RcodeNameError
			m.Ns = []dns.RR{rr("test. 300 IN SOA ns.test. root.test. 1 2 3 4 60")}
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			size := dns.MinMsgSize
			if opt := q.IsEdns0(); opt != nil {
				size = int(opt.UDPSize())
			}
			m.Truncate(size)
		}
		_ = w.WriteMsg(m)
	})
	ln, pc := listenBoth(t)
	for _, s := range []*dns.Server{{Listener: ln, Handler: handler}, {PacketConn: pc, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return ln.Addr().String()
}

// listenBoth takes a port for TCP and for UDP. It may be free for one of them only.
func listenBoth(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	var err error
	for range 100 {
		var ln net.Listener
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		var pc net.PacketConn
		if pc, err = net.ListenPacket("udp", ln.Addr().String()); err == nil {
			return ln, pc
		}
		ln.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// dig returns what dig prints of the answer.
func dig(t *testing.T, addr string, args ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("dig", append([]string{"@" + host, "-p", port, "+tries=1", "+time=20", "+nocmd", "+nostats"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	// What a forwarder says otherwise, as it must: who it is, and the sizes of EDNS.
	text := regexp.MustCompile(`(?m)^;; (Got answer|->>HEADER|flags|OPT|WARNING|QUESTION|Truncated).*$|^; (EDNS|COOKIE).*$`).ReplaceAllString(string(out), "")
	status := regexp.MustCompile(`status: \w+`).FindString(string(out))
	return status + "\n" + strings.Join(strings.Fields(text), " ")
}

func TestDigSeesTheSame(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it needs dig and runs it a hundred times; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig is not installed (Debian: apt-get install bind9-dnsutils)")
	}
	upstream := authority(t)
	var out lockedBuffer
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "udp://127.0.0.1:0", "-upstream", upstream}, &out, os.Stderr)
	}()
	defer func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d", code)
		}
	}()
	addr := out.wait(t, regexp.MustCompile(`udp://(\S+) and`))
	questions := [][]string{{"nothing.test.", "A"}, {"long.test.", "TXT"}, {"X.tEsT.", "A"}}
	for _, s := range records {
		f := strings.Fields(s)
		questions = append(questions, []string{f[0], f[3]})
	}
	began := time.Now() // an answer may be in the cache since one asked in another way
	for _, q := range questions {
		for _, how := range []string{"+notcp", "+tcp", "+noedns"} {
			args := append([]string{how, "+norec"}, q...)
			want := dig(t, upstream, args...)
			for _, from := range []string{"upstream", "cache"} {
				if got := dig(t, addr, args...); !sameAnswer(got, want, time.Since(began)) {
					t.Errorf("dig %v, from %s:\n%s\nwant\n%s", args, from, got, want)
				}
			}
		}
	}
	digIsRefused(t, addr)
}

// digIsRefused asks for what there is no more to say to than why.
func digIsRefused(t *testing.T, addr string) {
	for want, how := range map[string]string{
		"BADVERS": "+edns=1 +noednsnegotiation", "NOTIMP": "+opcode=notify", "FORMERR": "+header-only", "NOERROR": "+ednsflags=0x40 +ednsopt=65001:0102",
	} {
		for _, by := range []string{"+notcp", "+tcp"} {
			args := append(strings.Fields(how), by, "x.test.", "A")
			if got := dig(t, addr, args...); !strings.HasPrefix(got, "status: "+want+"\n") {
				t.Errorf("dig %v: %s", args, got)
			}
		}
	}
}

var livesFor = regexp.MustCompile(` (\d+) IN `)

// sameAnswer reports whether two answers differ in nothing but times to live, which may have become
// less by what has passed: a machine that is busy runs dig for seconds.
func sameAnswer(got, want string, passed time.Duration) bool {
	if livesFor.ReplaceAllString(got, " IN ") != livesFor.ReplaceAllString(want, " IN ") {
		return false
	}
	wants := livesFor.FindAllStringSubmatch(want, -1)
	for i, m := range livesFor.FindAllStringSubmatch(got, -1) {
		g, _ := strconv.Atoi(m[1])
		w, _ := strconv.Atoi(wants[i][1])
		if g > w || g < w-int(passed/time.Second)-1 {
			return false
		}
	}
	return true
}

// lockedBuffer is what the program prints.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// wait returns what the pattern finds.
func (b *lockedBuffer) wait(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if m := pattern.FindStringSubmatch(b.text()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("it does not start: %s", b.text())
	return ""
}

// dnsperf asks as fast as it gets answers; each question must have one.
func TestDnsperf(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it keeps both cores busy; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	if _, err := exec.LookPath("dnsperf"); err != nil {
		t.Skip("dnsperf is not installed (Debian: apt-get install dnsperf)")
	}
	upstream := authority(t)
	var out lockedBuffer
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "udp://127.0.0.1:0", "-upstream", upstream}, &out, os.Stderr)
	}()
	defer func() { cancel(); <-ended }()
	host, port, _ := net.SplitHostPort(out.wait(t, regexp.MustCompile(`udp://(\S+) and`)))
	questions := t.TempDir() + "/questions"
	if err := os.WriteFile(questions, []byte("x.test A\nx.test AAAA\nx.test MX\nx.test TXT\nno.test A\nalias.test CNAME\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"udp", "tcp"} {
		report, err := exec.Command("dnsperf", "-s", host, "-p", port, "-m", mode, "-d", questions, "-l", "2", "-c", "10", "-t", "60").CombinedOutput()
		if err != nil || !bytes.Contains(report, []byte("(100.00%)")) {
			t.Errorf("dnsperf by %s: %v\n%s", mode, err, report)
		}
		t.Logf("%s: %s", mode, regexp.MustCompile(`Queries per second: *\S+`).Find(report))
	}
}
