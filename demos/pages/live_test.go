package pages

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
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
	if runtime.GOOS == "linux" {
		srv.Engine = loop.EngineEpoll // two loops of gnet would take both processors from the clients and the tickers
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
		return shows(page, `(?s)Longest turns.*<td[^>]*>[1-9]\d\d+ ms</td><td[^>]*>\d</td><td[^>]*>[^<]*</td><td[^>]*>message</td><td[^>]*>#.*Largest`)
	}
	for end := time.Now().Add(time.Minute); !slept() && time.Now().Before(end); {
		page.Eval("new Promise(done => setTimeout(done, 1000))")
	}
	for what, pattern := range map[string]string{
		"all connections":     `<b>5,000</b><span>connections</span>`,
		"two loops":           `(?s)<h2[^>]*>loop 0</h2>.*<h2[^>]*>loop 1</h2>`,
		"connections in rows": `(?s)Longest silent.*pages.device.*<button [^>]*>close</button>`,
		"stalled ones":        `(?s)Slowest: output does not move.*MiB</td>`,
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
	page.Resize(480, 2400, "light")
	page.Screenshot("phone")
	page.Resize(1440, 1500, "dark")
	page.Screenshot("dark")
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
	p := b.Open("live-width", url, "#how", 1920, 900, "light")
	p.Until("document.querySelectorAll('#tiles .tile').length > 0 && history.length > 1")
	for _, width := range []int64{1920, 1400, 1200, 1000, 820, 390, 320} {
		p.Resize(width, 900, "light")
		// Rates of all loops are as large in sum, and then each.
		const large = `[1, last.loops.length].map(parts => {
			const most = { conns: 9999, timers: 999949, messages: 999949, bytesIn: 1048524, bytesOut: 1023.94 * 2 ** 20, fired: 999949,
				busy: 1000, lag: 59949, turn: 59949, blocked: 9999, mailbox: 9999 };
			const s = structuredClone(last), before = structuredClone(last);
			before.time = new Date(new Date(s.time) - 1000).toISOString();
			before.accepted = 0;
			Object.assign(s, { closed: 999949, evicted: 9999, refused: 999949, cut: 9999, panics: 9999, heldBack: 999949, moved: 999949, accepted: 999949,
				handshakes: 999949, handshakesFailed: 999949, offloaded: 999949, offloadWaiting: 9999 });
			s.loops.forEach((l, i) => {
				for (const key in most) { l[key] = most[key] / parts; before.loops[i][key] = 0; }
			});
			const r = rates(s, before);
			showTiles(s, r);
			remember(s, r, Date.now());
			showHistory(Date.now());
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

// At each width no row of cards leaves a place empty, whatever the number of loops, and axe-core has
// nothing to say.
func TestLivePageLayout(t *testing.T) {
	b := browser.Start(t)
	_, conns, url := devices(t, 40)
	report(t, conns[:20], func(i int) time.Duration { return time.Duration(20+10*i) * time.Millisecond })
	p := b.Open("live", url, "#how", 1400, 1600, "light")
	p.Until("document.querySelectorAll('#lists tr').length > 10 && history.length > 3")
	for _, width := range []int64{1400, 820, 390} {
		for _, scheme := range []string{"light", "dark"} {
			p.Resize(width, 1600, scheme)
			p.Eval("window.before = last.time; 0")
			p.Until("last.time !== before") // it draws once a second
			p.Screenshot(fmt.Sprint(width, "-", scheme))
			p.Accessible(fmt.Sprintf("%d wide, %s", width, scheme))
			const empty = `((base, counts) => counts.flatMap(n => {
				show({ ...base, loops: Array.from({ length: n }, (_, i) => structuredClone(base.loops[i % 2])) });
				return ['tiles', 'history', 'loops', 'lists'].flatMap(id => {
					const area = document.getElementById(id), rows = {};
					for (const e of area.children) (rows[e.offsetTop] ||= []).push(e.getBoundingClientRect());
					return Object.values(rows).filter(row => row.at(-1).right < area.getBoundingClientRect().right - 2)
						.map(row => n + ' loops: ' + row.length + ' in a row of #' + id);
				});
			}).join('; '))(last, [1, 2, 3, 4, 5, 8])`
			if got := p.Eval(empty); got != "" {
				t.Errorf("at a width of %d there is place left: %v", width, got)
			}
		}
	}
}

// churn opens and closes connections until the test ends, each with a timer in another ring.
func churn(t *testing.T, srv *loop.Server) {
	var ended sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { close(done); ended.Wait() })
	ended.Go(func() {
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		var open []net.Conn
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				return
			}
			l := srv.Loops()[i%2]
			if err := l.Post(func() { l.AfterFunc(time.Second<<(i%20), func() {}) }); err != nil {
				t.Error(err)
			}
			if open = append(open, c); len(open) > 12 {
				for _, c := range open[:10] {
					_ = c.Close()
				}
				open = open[10:]
			}
		}
	})
}

// While connections come and go, what has the pointer or the focus stays where it is, and what it
// was. The page speaks only when the server does not answer.
func TestLivePageHoldsStill(t *testing.T) {
	b := browser.Start(t)
	srv, _, url := devices(t, 3)
	churn(t, srv)
	for _, width := range []int64{1400, 390} {
		p := b.Open(fmt.Sprint("live-still-", width), url, "#how", width, 1200, "light")
		p.Until("document.querySelectorAll('#lists button').length > 3 && history.length > 2")
		p.Eval(`window.spoken = 0;
			for (const e of document.querySelectorAll('[role], [aria-live]')) {
				new MutationObserver(() => spoken++).observe(e, { childList: true, characterData: true, subtree: true });
			}
			window.still = (what, seconds) => { // what changes of it while so many states come
				const before = what(), from = last.time;
				return new Promise(done => {
					let states = 0, seen = from;
					const look = setInterval(() => {
						if (last.time !== seen) { seen = last.time; states++; }
						if (what() !== before) { clearInterval(look); done(before + ' became ' + what()); }
						if (states >= seconds) { clearInterval(look); done(''); }
					}, 20);
				});
			}
			window.place = e => { const r = e.getBoundingClientRect(); return [e.ariaLabel || e.id, r.x, r.y + scrollY, r.width].join(' '); }; 0`)
		for _, tt := range []struct{ name, prepare, what string }{
			{"the top of the lists", "scrollTo(0, 0)", "document.querySelector('#lists').offsetTop"},
			{"what has the focus", "document.querySelectorAll('#lists button')[2].focus()", "place(document.activeElement)"},
		} {
			p.Eval(tt.prepare + "; 0")
			if got := p.Eval("still(() => " + tt.what + ", 4)"); got != "" {
				t.Errorf("%d wide: %s moves: %v", width, tt.name, got)
			}
		}
		p.Eval("document.activeElement.blur(); 0")
		p.Eval("document.querySelectorAll('#lists button')[3].scrollIntoView({ block: 'center' }); 0")
		x, y := p.Point("document.querySelectorAll('#lists button')[3]")
		if got := p.Eval(fmt.Sprintf("still(() => place(document.elementFromPoint(%f, %f)), 4)", x, y)); got != "" {
			t.Errorf("%d wide: what has the pointer moves: %v", width, got)
		}
		named := p.Eval(fmt.Sprintf("document.elementFromPoint(%f, %f).ariaLabel", x, y))
		p.Click(x, y)
		p.Until(fmt.Sprintf("document.elementFromPoint(%f, %f).ariaLabel.replace(/^\\w+/, 'close') === %q && document.elementFromPoint(%f, %f).textContent !== 'close'", x, y, named, x, y))
		p.Until("spoken === 0")
		p.Eval("fetch = (_, { signal }) => new Promise((_, fail) => signal.onabort = fail); 0") // as a server that hangs
		p.Until("document.querySelector('#state').textContent === 'the server does not answer'")
		if got := p.Eval("new Promise(done => setTimeout(() => done(spoken), 5000))"); got != 1.0 {
			t.Errorf("%d wide: a server that does not answer is spoken of %v times, want 1", width, got)
		}
	}
}

// The charts plot time: while nobody looks there is a gap, as wide as it was long.
func TestLivePageCharts(t *testing.T) {
	b := browser.Start(t)
	_, conns, url := devices(t, 4)
	report(t, conns, func(int) time.Duration { return 20 * time.Millisecond })
	p := b.Open("live-charts", url, "#how", 1400, 900, "light")
	p.Until("history.length >= 4")
	p.Eval("Object.defineProperty(document, 'hidden', { value: true, configurable: true }); window.hid = Date.now(); 0")
	p.Until("Date.now() - hid > 10000")
	p.Eval("Object.defineProperty(document, 'hidden', { value: false }); document.dispatchEvent(new Event('visibilitychange')); 0")
	p.Until("history.length >= 7 && history.at(-1).at - history.at(-3).at > 1500")
	p.Screenshot("gap")
	// Each chart has a line where it has points, and none in the gap. A rate over the gap is none.
	const wrong = `(() => {
		const now = Date.now();
		showHistory(now);
		const gapAt = history.findIndex((p, i) => i && p.at - history[i - 1].at > 8000);
		if (gapAt < 0) return 'no gap in ' + JSON.stringify(history.map(p => p.at - now));
		if (!Number.isNaN(history[gapAt].messages)) return 'a rate over the gap';
		return [...document.querySelectorAll('#history figure')].flatMap((f, i) => {
			const canvas = f.querySelector('canvas'), g = canvas.getContext('2d'), scale = devicePixelRatio;
			const width = canvas.clientWidth, color = getComputedStyle(document.documentElement).getPropertyValue('--main').match(/\w\w/g).map(v => parseInt(v, 16));
			const inked = at => { // whether the chart has its colour at a time
				const x = width - 1 - (now - at) * (width - 1 - 52) / 60e3;
				const data = g.getImageData(Math.round(x * scale) - 2, 0, 5, canvas.height).data;
				for (let i = 0; i < data.length; i += 4) if (color.every((v, c) => Math.abs(data[i + c] - v) < 40) && data[i + 3] > 200) return true;
				return false;
			};
			const from = history[gapAt - 1].at, to = history[gapAt].at, faults = [];
			if (!inked((history[1].at + from) / 2)) faults.push('no line before the gap');
			for (let at = from + 1000; at < to - 500; at += 1000) if (inked(at)) faults.push('a line in the gap');
			if (!inked((history[gapAt + 1].at + history.at(-1).at) / 2)) faults.push('no line after the gap');
			return faults.map(what => charts[i][0] + ': ' + what);
		}).join('; ');
	})()`
	if got := p.Eval(wrong); got != "" {
		t.Error(got)
	}
}

// The live page of the gateway, as its program serves it, and its API, to a page of its own.
func TestGateway(t *testing.T) {
	b := browser.Start(t)
	gateway := start(t, build(t, "gateway"), "-open", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0")
	api, live, addr := gateway.says(`commands on (\S+)`), gateway.says(`live page on (\S+/),`), gateway.says(`listening on tcp://(\S+)`)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := b.Open("gateway", live, "#how", 1400, 900, "light")
	p.Until("/<b>1<.b><span>connections</.test(document.querySelector('#tiles').innerHTML)")
	p.Accessible("of the gateway")
	devices := b.Open("gateway-api", api, "body", 800, 600, "light")
	devices.Says("body", "[]")
	if got := devices.Eval("fetch('/devices/none/command', { method: 'POST', body: 'x' }).then(r => r.status)"); got != 404.0 {
		t.Errorf("a command to no device: %v, want 404", got)
	}
	if got := p.Eval(fmt.Sprintf("fetch(%q, { method: 'POST', mode: 'no-cors', body: 'x' }).then(r => r.status, () => 'refused')", api+"/none/command")); got != "refused" {
		t.Errorf("a command by a page of another origin: %v, want the policy to refuse it", got)
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
	var all []*browser.Page
	for _, scheme := range []string{"light", "dark"} {
		for name, size := range map[string][2]int64{"live-": {1200, 980}, "live-phone-": {390, 844}} {
			all = append(all, b.Open(name+scheme, url, "#how", size[0], size[1], scheme))
		}
	}
	for _, p := range all {
		p.Until("history.length >= 30 && document.querySelector('#how').textContent")
		p.Screenshot("page")
	}
}
