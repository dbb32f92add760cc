package loopmetrics_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// crowdSize is how many connections the browser is shown.
const crowdSize = 5000

// TestBrowser opens the live page and the metrics in Chromium, beside thousands of connections that
// talk. Pictures stay in LOOPWHEEL_OUT.
func TestBrowser(t *testing.T) {
	if os.Getenv("LOOPWHEEL_BROWSER") == "" {
		t.Skip("it needs Chromium; to run it set LOOPWHEEL_BROWSER=1, as CI does")
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("no Chromium: install it (apt-get install chromium)")
	}
	srv := startCrowd(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: loopmetrics.NewHandler(srv)}
	go func() { _ = web.Serve(ln) }()
	t.Cleanup(func() { _ = web.Close() })
	url := "http://" + ln.Addr().String()
	dom := browse(t, chromium, "--dump-dom", "--virtual-time-budget=8000", url+"/")
	for what, pattern := range map[string]string{
		"all connections":     `<b>5,000</b><span>connections</span>`,
		"two loops":           `(?s)<h2[^>]*>loop 0</h2>.*<h2[^>]*>loop 1</h2>`,
		"connections in rows": `(?s)Longest silent.*loopmetrics_test.session.*<button>close</button>`,
		"stalled ones":        `(?s)Slowest: output does not move.*MiB.*Longest silent`,
		"a slow turn":         `(?s)Longest turns.*<td[^>]*>[1-9]\d\d+ ms</td>.*Largest`,
		"messages":            `messages per second</span><span>[\d.,]+( k)? now, [1-9]([\d,]+|[\d.]+ k) at most`,
	} {
		if !regexp.MustCompile(pattern).MatchString(dom) {
			t.Errorf("the page does not show %s", what)
		}
	}
	if t.Failed() {
		t.Log(dom)
	}
	metrics, open := browse(t, chromium, "--dump-dom", url+"/metrics"), 0
	for _, m := range regexp.MustCompile(`loopwheel_connections\{loop="\d"\} (\d+)`).FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.Atoi(m[1])
		open += n
	}
	if open != crowdSize {
		t.Errorf("the metrics show %d connections: %.2000s", open, metrics)
	}
	dir := os.Getenv("LOOPWHEEL_OUT")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, args := range map[string][]string{
		"live-page.png":       {"--window-size=1440,1500", "--virtual-time-budget=8000", url + "/"},
		"live-page-phone.png": {"--window-size=480,2400", "--virtual-time-budget=8000", url + "/"},
		"live-page-dark.png":  {"--window-size=1440,1500", "--blink-settings=preferredColorScheme=0", "--virtual-time-budget=8000", url + "/"},
		"metrics.png":         {"--window-size=1440,9000", url + "/metrics"},
	} {
		file := filepath.Join(dir, name)
		browse(t, chromium, append([]string{"--screenshot=" + file}, args...)...)
		if info, err := os.Stat(file); err != nil || info.Size() < 20_000 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func browse(t *testing.T, chromium string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
		"--disable-background-networking", "--user-data-dir=" + t.TempDir()}, args...)
	out, err := exec.CommandContext(ctx, chromium, args...).Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

// startCrowd runs a server with thousands of connections, of which some talk, one was slow, and one
// does not read.
func startCrowd(t *testing.T) *loop.Server {
	testkit.NeedFiles(t, 2*crowdSize+100)
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, IdleTimeout: time.Hour, MaxOutbound: 64 << 20,
		Accept: func(c *loop.Conn) loop.Handler {
			c.Every(time.Minute, func() {})
			return session{}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, crowdSize)
	for i := range conns {
		c, err := net.Dial("tcp", srv.LocalAddr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		conns[i] = c
	}
	testkit.Eventually(t, "all are open", func() bool { return srv.Stats().Conns == crowdSize })
	var all sync.WaitGroup
	for i, c := range conns[1:1000] {
		all.Go(func() { chatter(c, time.Duration(i)*chatterPause/1000) })
	}
	testkit.Eventually(t, "a turn was seen to be slow", func() bool { // again, if the machine stood still
		say(t, conns[1000], "sleep")
		return slowTurns(srv) > 0
	})
	flood(t, srv, conns[0].LocalAddr().String())
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// slowTurns returns how many the loops show that took as long as "sleep" does.
func slowTurns(srv *loop.Server) (n int) {
	for _, ls := range srv.Stats().Loops {
		for _, s := range ls.SlowTurns {
			if s.Took >= 100*time.Millisecond {
				n++
			}
		}
	}
	return n
}

// chatterPause is how often each that talks does.
const chatterPause = 500 * time.Millisecond

// chatter says something now and then until c is closed, for the first time after a while. So
// others talk at other times: what the browser takes for seconds may be over in some milliseconds.
func chatter(c net.Conn, first time.Duration) {
	time.Sleep(first)
	for buf := make([]byte, 64); ; time.Sleep(chatterPause) {
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return
		}
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// flood sends more to a connection than it takes.
func flood(t *testing.T, srv *loop.Server, remote string) {
	for _, l := range srv.Loops() {
		if err := l.Post(func() {
			for c := range l.Conns() {
				if c.RemoteAddr().String() == remote {
					_, _ = c.Write(make([]byte, 16<<20))
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
