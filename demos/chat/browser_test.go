package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/loopwheel/loopwheel/demos/internal/browser"
	"github.com/loopwheel/loopwheel/loop"
)

// A webPage is one tab with the chat in it.
type webPage struct{ *browser.Page }

// open opens the page of the chat.
func open(b *browser.Browser, name, url string, width, height int64, scheme string) *webPage {
	return &webPage{b.Open("chat-"+name, url, "#say", width, height, scheme)}
}

// says waits until the text is in the log.
func (p *webPage) says(text string) { p.Says("#log", text) }

// A liner is somebody with nc.
type liner struct {
	t testing.TB
	net.Conn
	in *bufio.Scanner
}

func dialLines(t testing.TB, srv *loop.Server) *liner {
	t.Helper()
	c, err := net.Dial("tcp", srv.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	if srv.TLS != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &liner{t, c, bufio.NewScanner(c)}
}

func (l *liner) say(format string, args ...any) {
	l.t.Helper()
	if _, err := fmt.Fprintf(l.Conn, format+"\n", args...); err != nil {
		l.t.Fatal(err)
	}
}

// hears reads lines until one ends with what is wanted.
func (l *liner) hears(want string) (line string) {
	l.t.Helper()
	var got []string
	for l.in.Scan() {
		if strings.HasSuffix(l.in.Text(), want) {
			return l.in.Text()
		}
		got = append(got, l.in.Text())
	}
	err := l.in.Err()
	if err == nil {
		err = io.EOF
	}
	l.t.Fatalf("never heard %q: %v; heard %q", want, err, got)
	return ""
}

// saidLately reports whether a minute of the day is not long ago.
func saidLately(minute time.Time) bool {
	now := time.Now().UTC()
	ago := time.Duration(now.Hour()*60+now.Minute()-minute.Hour()*60-minute.Minute()) * time.Minute
	return (ago+24*time.Hour)%(24*time.Hour) <= 5*time.Minute
}

// Two pages and one who came by lines, in one room.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	opt := testOptions()
	opt.ping = time.Second
	srv, stop := serve(t, opt)
	opt.web, opt.lines = port(srv.Addrs()[0]), port(srv.Addrs()[1])
	url := "http://" + srv.Addrs()[0].String() + "/"

	ann := open(b, "ann", url, 1280, 800, "light")
	ann.Until("document.querySelector('#enter').open && document.activeElement.id === 'nick'")
	ann.Screenshot("enter")
	ann.TypeLine("ann")
	ann.says("You have joined lobby")
	bob := open(b, "bob", url+"?nick=bob#lobby", 390, 844, "dark")
	bob.says("You have joined lobby")
	nc := dialLines(t, srv)
	nc.say("/nick carl")
	nc.hears(" is now carl")
	talk(ann, bob, nc)
	harmless(ann, bob, nc)
	meters(t, ann, bob)
	presence(ann, bob, nc)

	stop() // the server restarts: the pages say so, and come back by themselves
	ann.Until("!document.querySelector('#banner').hidden")
	ann.Screenshot("restart")
	srv, _ = serve(t, opt)
	for _, p := range []*webPage{ann, bob} {
		p.says("connected again")
		p.Until("document.querySelector('#link').classList.contains('on') && document.querySelector('#banner').hidden")
	}
	ann.Until("document.querySelector('#here').textContent === '2'")
	ann.TypeLine("are you back?")
	bob.says("are you back?")
	nc = dialLines(t, srv)
	line := nc.hears("] <ann> are you back?")
	if at, err := time.Parse("[15:04", line[:6]); err != nil || !saidLately(at) {
		t.Errorf("heard %q, want the time of day before it", line)
	}
}

// The same over TLS, with a certificate made on the spot.
func TestBrowserTLS(t *testing.T) {
	b := browser.Start(t)
	srv, stop := serve(t, secureOptions(t))
	url := "https://" + srv.Addrs()[0].String() + "/?nick="
	ann := open(b, "tls-ann", url+"ann#lobby", 1280, 800, "light")
	bob := open(b, "tls-bob", url+"bob#lobby", 390, 844, "dark")
	for _, p := range []*webPage{ann, bob} {
		p.says("You have joined lobby")
		p.Until("state.ws.url.startsWith('wss://') && document.querySelector('#link').classList.contains('on')")
	}
	nc := dialLines(t, srv)
	nc.say("/nick carl")
	nc.hears(" is now carl")
	talk(ann, bob, nc)
	presence(ann, bob, nc)
	ann.Screenshot("talk")
	stop()
	ann.Until("!document.querySelector('#banner').hidden")
}

// talk: messages cross, in all directions.
func talk(ann, bob *webPage, nc *liner) {
	ann.TypeLine("hello from the page")
	nc.hears("<ann> hello from the page")
	bob.says("hello from the page")
	nc.say("hello from nc")
	ann.says("hello from nc")
	bob.says("hello from nc")
	bob.TypeLine("hello from the phone")
	ann.says("hello from the phone")
	nc.hears("<bob> hello from the phone")
	bob.TypeLine("/msg ann only for you")
	ann.says("only for you")
	nc.say("/msg bob psst")
	bob.says("psst")
	ann.TypeLine("/remind 1s look up")
	ann.says("reminder: look up")
}

// harmless: what looks like HTML is text, in nicknames too, and nothing of it runs.
func harmless(ann, bob *webPage, nc *liner) {
	const evil = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>`
	nc.say("/nick <b>carl")
	nc.say("%s", evil)
	for _, p := range []*webPage{ann, bob} {
		p.says("carl is now <b>carl")
		p.says(evil)
		p.Until("![...document.querySelectorAll('#log img, #log script, #log b')].length && !window.owned")
	}
}

// meters: the countdown, the round-trip time and the view of the server are alive.
func meters(t *testing.T, ann, bob *webPage) {
	ann.Until("/ms$/.test(document.querySelector('#link b').textContent)")
	ann.Until("document.querySelectorAll('#loops .loop').length === 2")
	ann.Until("!document.querySelector('#idle').hidden && document.querySelector('#idle b').textContent.length > 0")
	contains(t, fmt.Sprint(ann.Eval("document.querySelector('#tiles').innerText")), "connections")
	ann.Screenshot("talk")
	bob.Screenshot("phone")
	bob.Eval("document.querySelector('#more').click()")
	bob.Until("document.querySelectorAll('#loops .loop').length === 2 && getComputedStyle(document.querySelector('#side')).visibility === 'visible' && document.querySelector('#side').getBoundingClientRect().right <= innerWidth + 1")
	bob.Screenshot("drawer")
	bob.Key(kb.Escape)
	bob.Until("!document.body.classList.contains('drawer')")
}

// presence: who comes and goes is shown.
func presence(ann, bob *webPage, nc *liner) {
	ann.Until("document.querySelector('#here').textContent === '3'")
	nc.say("/quit")
	ann.Until("document.querySelector('#here').textContent === '2'")
	bob.says("has left")
}

// A silent page is kicked at its time, and says why; one that talks is not.
func TestBrowserIdle(t *testing.T) {
	b := browser.Start(t)
	opt := testOptions()
	opt.idle, opt.ping = 4*time.Second, time.Second
	srv, _ := serve(t, opt)
	url := "http://" + srv.Addrs()[0].String() + "/?nick="
	silent := open(b, "silent", url+"silent#quiet", 1280, 800, "dark")
	talks := open(b, "talks", url+"talks#quiet", 1280, 800, "light")
	silent.says("You have joined quiet")
	talks.says("You have joined quiet")
	// The page measures for how long the machine stands still, too.
	silent.Eval("window.stood = 0; { let last = performance.now(); setInterval(() => { const now = performance.now(); if (!window.code) window.stood += Math.max(0, now - last - 100); last = now; }, 20) }; window.began = performance.now(); state.ws.addEventListener('close', e => { window.ended = performance.now(); window.code = e.code; }), 0")
	for !closedYet(silent) {
		talks.TypeLine("still here")
		talks.Eval("new Promise(done => setTimeout(done, 500))")
	}
	silent.Until("window.code === 4000")
	silent.says("You were kicked: you said nothing for 4s")
	silent.Until("document.querySelector('#banner').innerText.includes('you said nothing for 4s')")
	silent.Screenshot("kicked")
	talks.says("silent has left (kicked: idle)")
	talks.Until("document.querySelector('#link').classList.contains('on')")
	// If answers to pings put it off, it would never be; Chromium may keep a busy machine from it for
	// a while.
	if took, _ := silent.Eval("window.ended - window.began - window.stood").(float64); took > 8000 {
		t.Errorf("kicked after %.0f ms, want 4 s, or less than twice that on a busy machine", took)
	}
	t.Logf("the machine stood still for %v ms", silent.Eval("window.stood"))
	silent.Eval("document.querySelector('#banner button').click()")
	silent.Until("document.querySelector('#link').classList.contains('on')")
	talks.says("silent has joined")
}

func closedYet(p *webPage) bool { return p.Eval("!!window.code") == true }
