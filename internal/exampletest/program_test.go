package exampletest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A program runs until the test stops it or ends.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	said output
}

// output is what a program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func start(t *testing.T, name string, flags ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(built(name), append([]string{"-addr", "tcp://127.0.0.1:0"}, flags...)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// says waits until the program has said what a pattern describes, and returns its last group.
func (p *program) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var m []string
	defer func() {
		if m == nil {
			p.t.Logf("it said %s", p.said.String())
		}
	}()
	testkit.Eventually(p.t, "it says "+pattern, func() bool {
		m = re.FindStringSubmatch(p.said.String())
		return m != nil
	})
	return m[len(m)-1]
}

func (p *program) dial() net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.says(`listening on tcp://(\S+)`))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// ends sends a signal, after which the program must drain and return 0. It must not have used
// colours.
func (p *program) ends(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	p.ended()
}

func (p *program) ended() {
	p.t.Helper()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("it ended with %v, want exit code 0", err)
	}
	if said := p.said.String(); !strings.Contains(said, "bye") || strings.Contains(said, "\x1b") {
		p.t.Errorf("it said %q, want \"bye\" and no colours", said)
	}
}

func exchange(t *testing.T, c io.ReadWriter, say, want string) {
	t.Helper()
	if _, err := io.WriteString(c, say); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("said %q, got %q, %v; want %q", say, got, err, want)
	}
}

func TestEchoesAndDrains(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t, "echo")
			c := p.dial()
			exchange(t, c, "hello\n", "hello\n")
			p.dial().Close()
			p.says(`"reason":"EOF"`)
			if err := p.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
				t.Fatalf("%q, %v; want the end of the stream", rest, err)
			}
			p.ended()
		})
	}
}

// Over UDP a datagram is a message: it comes back as it was sent, also without the end of a line.
func TestEchoesDatagrams(t *testing.T) {
	t.Parallel()
	p := start(t, "echo", "-addr", "udp://127.0.0.1:0")
	addr := p.says(`listening on udp://(\S+)`)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	p.says("nc -u " + host + " " + port + "\n")
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	for _, datagram := range []string{"hello\n", "two\nlines"} {
		exchange(t, c, datagram, datagram)
	}
	p.ends(syscall.SIGTERM)
}

// A wrong flag, and an address that cannot be had, end each example with a line that says so.
func TestRefuses(t *testing.T) {
	ln := testkit.Serve(t, func(net.Conn) {})
	taken := ln.Addr().String()
	needed := map[string][]string{"proxy": {"-to", "127.0.0.1:1"}, "gateway": {"-open", "-http", "127.0.0.1:0"}}
	for _, name := range examples {
		for _, c := range []struct {
			code  int
			says  string
			flags []string // after those that are needed
		}{
			{2, "-nosuch", []string{"-nosuch"}},
			{1, taken, []string{"-addr", "tcp://" + taken}},
			{1, "icmp", []string{"-addr", "icmp://127.0.0.1:0"}},
			{2, "extra", []string{"extra"}},
			{2, "-drain -1s", []string{"-drain", "-1s"}},
			{2, "-http is empty", []string{"-http", ""}},
			{2, "GATEWAY_KEY is not set", []string{"-open=false"}},
		} {
			if strings.Contains(c.says, " ") && name != "gateway" {
				continue // its flags
			}
			t.Run(name+" "+c.flags[len(c.flags)-1], func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(built(name), append(slices.Clone(needed[name]), c.flags...)...)
				out, _ := cmd.CombinedOutput()
				if got := cmd.ProcessState.ExitCode(); got != c.code {
					t.Errorf("exit code %d, want %d", got, c.code)
				}
				if got := string(out); !strings.Contains(got, c.says) || c.says != "-nosuch" && strings.Count(got, "\n") != 1 {
					t.Errorf("it says %q, want one line with %q", got, c.says)
				}
			})
		}
	}
}

// frame is a message on the wire of examples/gateway.
func frame(kind byte, id uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xA5}, uint16(3+len(payload)))
	b = append(binary.BigEndian.AppendUint16(append(b, kind), id), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[1:]))
}

// login is what a device says first, and loggedIn the answer.
func login(name string) []byte {
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte(name))
	return frame('L', 0, append(mac.Sum(nil), name...))
}

var loggedIn = frame('L', 0, nil)

// The end of the gateway: the request that waits gets the device's answer, then the device is sent
// away. Until then both are served.
func TestOrderOfTheEnd(t *testing.T) {
	t.Parallel()
	p := start(t, "gateway", "-open", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-drain", "0")
	api := p.says(`commands on (\S+)`)
	lamp := p.dial()
	exchange(t, lamp, string(login("lamp")), string(loggedIn))
	if body, want := get(t, p.says(`metrics on (\S+)`)), "loopwheel_accepted_total 1\n"; !strings.Contains(body, want) {
		t.Errorf("the metrics are %s, want %q among them", body, want)
	}
	answer := command(api, "lamp")
	exchange(t, lamp, "", string(frame('C', 1, []byte("on"))))
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.says("draining 1")
	exchange(t, lamp, string(frame('A', 1, []byte("is on"))), "")
	if got, want := testkit.Receive(t, "the answer", answer), "200 is on"; got != want {
		t.Errorf("the request gets %q, want %q", got, want)
	}
	if rest, err := io.ReadAll(lamp); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v; want the end of the stream", rest, err)
	}
	p.ended()
}

// command asks the gateway to tell a device "on", and returns where the status and the answer come.
func command(api, device string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		r, err := http.Post(api+"/"+device+"/command", "text/plain", strings.NewReader("on"))
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		answer <- fmt.Sprint(r.StatusCode, " ", string(body))
	}()
	return answer
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
