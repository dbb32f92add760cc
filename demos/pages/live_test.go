package pages

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/demos/internal/browser"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// A device is the handler of one that reports.
type device struct{}

func (device) OnMessage(c *loop.Conn, msg []byte) error {
	if string(msg) == "sleep" {
		time.Sleep(150 * time.Millisecond) // long enough for the watchdog to see it
	}
	return c.Send(msg)
}

func (device) OnClose(*loop.Conn, error) {}

// devices runs a server of two loops with n connections until the test ends, and its live page,
// whose address it returns.
func devices(t *testing.T, n int) (srv *loop.Server, conns []net.Conn, page string) {
	t.Helper()
	testkit.NeedFiles(t, 2*n+100)
	srv = &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, IdleTimeout: time.Hour, Limits: loop.Limits{MaxOutbound: 64 << 20},
		Accept: func(c *loop.Conn) loop.Handler {
			c.Every(time.Minute, func() {})
			c.Every(700*time.Millisecond, func() {})
			return device{}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := loopmetrics.NewHandler(srv)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: handler, ReadTimeout: time.Minute}
	go func() { _ = web.Serve(ln) }()
	t.Cleanup(func() {
		_ = web.Close()
		for _, c := range conns {
			_ = c.Close()
		}
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
	for i := range n {
		c, err := net.Dial("tcp", srv.LocalAddr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		conns = append(conns, c)
	}
	return srv, conns, "http://" + ln.Addr().String() + "/"
}

// report sends lines on each connection, and reads them back, until the test ends. pause says how
// long the i-th waits before each.
func report(t *testing.T, conns []net.Conn, pause func(i int) time.Duration) {
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			for buf := make([]byte, 64); ; {
				time.Sleep(pause(i)) // this is the load
				if _, err := io.WriteString(c, "21.5 degrees\n"); err != nil {
					return
				}
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		all.Wait()
	})
}

// The live page shows thousands of connections, of which some talk, one was slow, and one does not
// read. The metrics beside it count them.
func TestLivePage(t *testing.T) {
	const crowd = 5000
	b := browser.Start(t)
	srv, conns, url := devices(t, crowd)
	report(t, conns[2:1000], func(int) time.Duration { return 500 * time.Millisecond })
	var loops []chan struct{}
	for _, l := range srv.Loops() { // what conns[0] is sent is more than it takes
		done := make(chan struct{})
		loops = append(loops, done)
		if err := l.Post(func() {
			defer close(done)
			for c := range l.Conns() {
				if c.RemoteAddr().String() == conns[0].LocalAddr().String() {
					_, _ = c.Write(make([]byte, 16<<20))
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, done := range loops {
		<-done
	}
	page := b.Open("live-page", url, "#how", 1440, 1500, "light")
	slept := func() bool { // again, if it was not the callback that took long but the machine that stood still
		_, _ = io.WriteString(conns[1], "sleep\n")
		return shows(page, `(?s)Longest turns.*<td[^>]*>[1-9]\d\d+ ms</td><td[^>]*>\d</td><td[^>]*>[^<]*</td><td[^>]*>#.*Largest`)
	}
	for end := time.Now().Add(time.Minute); !slept() && time.Now().Before(end); {
		page.Eval("new Promise(done => setTimeout(done, 1000))")
	}
	for what, pattern := range map[string]string{
		"all connections":     `<b>5,000</b><span>connections</span>`,
		"two loops":           `(?s)<h2[^>]*>loop 0</h2>.*<h2[^>]*>loop 1</h2>`,
		"connections in rows": `(?s)Longest silent.*pages.device.*<button>close</button>`,
		"stalled ones":        `(?s)Slowest: output does not move.*MiB.*Longest silent`,
		"a slow turn":         `(?s)Longest turns.*<td[^>]*>[1-9]\d\d+ ms</td>.*Largest`,
		"messages":            `messages/s</span><span>[\d.,]+( k)? now, [1-9]([\d,]+|[\d.]+ k) at most`,
	} {
		if !shows(page, pattern) {
			t.Errorf("the page does not show %s", what)
		}
	}
	if t.Failed() {
		t.Log(page.Eval("document.documentElement.outerHTML"))
	}
	page.Screenshot("light")
	b.Open("live-page", url, "#how", 480, 2400, "light").Screenshot("phone")
	b.Open("live-page", url, "#how", 1440, 1500, "dark").Screenshot("dark")
	metrics, open := b.Open("metrics", url+"metrics", "pre", 1440, 4000, "light"), 0
	text := fmt.Sprint(metrics.Eval("document.body.innerText"))
	for _, m := range regexp.MustCompile(`loopwheel_connections\{loop="\d"\} (\d+)`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		open += n
	}
	if open != crowd {
		t.Errorf("the metrics show %d connections, want %d: %.2000s", open, crowd, text)
	}
}

// shows reports whether the page has, within some seconds, what a pattern describes.
func shows(p *browser.Page, pattern string) bool {
	re := regexp.MustCompile(pattern)
	for range 8 {
		if re.MatchString(fmt.Sprint(p.Eval("document.documentElement.outerHTML"))) {
			return true
		}
		p.Eval("new Promise(done => setTimeout(done, 500))") // it looks once a second
	}
	return false
}

// No number is wider than its card, on whatever screen, and however large it is.
func TestLivePageNumbersFit(t *testing.T) {
	b := browser.Start(t)
	_, _, url := devices(t, 10)
	for _, width := range []int64{320, 390, 768, 1000, 1200, 1440, 1920} {
		p := b.Open("live-width", url, "#how", width, 900, "light")
		p.Until("document.querySelectorAll('#tiles .tile').length > 0 && history.length > 1")
		// Rates of all loops are as large in sum, and then each.
		const large = `[1, last.loops.length].map(parts => {
			const most = { conns: 9999, timers: 999949, messages: 999949, bytesIn: 1048524, bytesOut: 1023.94 * 2 ** 20, fired: 999949,
				busy: 1000, lag: 59949, turn: 59949, blocked: 9999, mailbox: 9999 };
			const s = structuredClone(last), before = structuredClone(last);
			before.time = new Date(new Date(s.time) - 1000).toISOString();
			before.accepted = 0;
			Object.assign(s, { evicted: 9999, refused: 999949, cut: 9999, panics: 9999, heldBack: 999949, accepted: 999949,
				handshakes: 999949, handshakesFailed: 999949, handshakesPending: 9999, offloaded: 999949, offloadWaiting: 9999 });
			s.loops.forEach((l, i) => {
				for (const key in most) { l[key] = most[key] / parts; before.loops[i][key] = 0; }
			});
			const r = rates(s, before);
			showTiles(s, r);
			remember(s, r);
			showHistory();
			showLoops(s, r);
			return [...document.querySelectorAll('.tile, .tile b, figure, figcaption, .loop, dl, dd')]
				.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)
				.concat(document.documentElement.scrollWidth > innerWidth ? 'the page' : []);
		}).flat().join('; ')`
		if got := p.Eval(large); got != "" {
			p.Screenshot(fmt.Sprint("failed-", width))
			t.Errorf("at a width of %d these do not fit: %v", width, got)
		}
	}
}

// A page whose name is rebound to this machine reads nothing of the live page, and closes no
// connection: the browser sends its name.
func TestForeignHost(t *testing.T) {
	b := browser.Start(t)
	_, _, live := devices(t, 1)
	port := live[strings.LastIndex(strings.TrimSuffix(live, "/"), ":"):]
	own := b.Open("own", live, "#how", 800, 600, "light")
	if got := own.Eval("fetch('/state').then(r => r.status)"); got != 200.0 {
		t.Errorf("/state by the own address: %v, want 200", got)
	}
	foreign := b.Open("foreign", "http://evil.example"+port, "body", 800, 600, "light")
	foreign.Says("body", "not served under that name")
	for _, request := range []string{"fetch('/state')", "fetch('/close?loop=0&conn=1', {method: 'POST'})"} {
		if got := foreign.Eval(request + ".then(r => r.status)"); got != 421.0 {
			t.Errorf("%s by a foreign name: %v, want 421", request, got)
		}
	}
}

// The live page of README.md; TestChatPictures says how to make it again.
func TestLivePictures(t *testing.T) {
	b := browser.Start(t)
	_, conns, url := devices(t, 600)
	report(t, conns, func(i int) time.Duration { // more often in some seconds than in others
		pause := time.Duration(200+i) * time.Millisecond
		if time.Now().Unix()/5%2 == 0 {
			pause /= 2
		}
		return pause
	})
	for _, scheme := range []string{"light", "dark"} {
		for name, size := range map[string][2]int64{"live-": {1200, 720}, "live-phone-": {390, 844}} {
			p := b.Open(name+scheme, url, "#how", size[0], size[1], scheme)
			p.Until("history.length >= 30 && document.querySelector('#how').textContent")
			p.Screenshot("page")
		}
	}
}
