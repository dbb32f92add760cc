package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

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
func (l *liner) hears(want string) {
	l.t.Helper()
	var got []string
	for l.in.Scan() {
		if strings.HasSuffix(l.in.Text(), want) {
			return
		}
		got = append(got, l.in.Text())
	}
	err := l.in.Err()
	if err == nil {
		err = io.EOF
	}
	l.t.Fatalf("never heard %q: %v; heard %q", want, err, got)
}

// Two pages and one who came by lines, in one room.
func TestBrowser(t *testing.T) {
	slowly(t, "LOOPWHEEL_BROWSER", "it needs Chromium")
	opt := testOptions()
	opt.ping = time.Second
	srv, stop := serve(t, opt)
	opt.web, opt.lines = port(srv.Addrs()[0]), port(srv.Addrs()[1])
	b := startBrowser(t)
	url := "http://" + srv.Addrs()[0].String() + "/"

	ann := b.open("ann", url, 1280, 800, "light")
	ann.until("document.querySelector('#enter').open && document.activeElement.id === 'nick'")
	ann.screenshot("enter")
	ann.typeLine("ann")
	ann.says("You have joined lobby")
	bob := b.open("bob", url+"?nick=bob#lobby", 390, 844, "dark")
	bob.says("You have joined lobby")
	nc := dialLines(t, srv)
	nc.say("/nick carl")
	nc.hears(" is now carl")
	talk(ann, bob, nc)
	harmless(ann, bob, nc)
	meters(t, ann, bob)
	presence(ann, bob, nc)

	stop() // the server restarts: the pages say so, and come back by themselves
	ann.until("!document.querySelector('#banner').hidden")
	ann.screenshot("restart")
	srv, _ = serve(t, opt)
	for _, p := range []*webPage{ann, bob} {
		p.says("connected again")
		p.until("document.querySelector('#link').classList.contains('on') && document.querySelector('#banner').hidden")
	}
	ann.until("document.querySelector('#here').textContent === '2'")
	ann.typeLine("are you back?")
	bob.says("are you back?")
	nc = dialLines(t, srv)
	nc.hears("[" + time.Now().UTC().Format("15:04") + "] <ann> are you back?")
}

// talk: messages cross, in all directions.
func talk(ann, bob *webPage, nc *liner) {
	ann.typeLine("hello from the page")
	nc.hears("<ann> hello from the page")
	bob.says("hello from the page")
	nc.say("hello from nc")
	ann.says("hello from nc")
	bob.says("hello from nc")
	bob.typeLine("hello from the phone")
	ann.says("hello from the phone")
	nc.hears("<bob> hello from the phone")
	bob.typeLine("/msg ann only for you")
	ann.says("only for you")
	nc.say("/msg bob psst")
	bob.says("psst")
	ann.typeLine("/remind 1s look up")
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
		p.until("![...document.querySelectorAll('#log img, #log script, #log b')].length && !window.owned")
	}
}

// meters: the countdown, the round-trip time and the view of the server are alive.
func meters(t *testing.T, ann, bob *webPage) {
	ann.until("/ms$/.test(document.querySelector('#link b').textContent)")
	ann.until("document.querySelectorAll('#loops .loop').length === 2")
	ann.until("!document.querySelector('#idle').hidden && document.querySelector('#idle b').textContent.length > 0")
	contains(t, fmt.Sprint(ann.eval("document.querySelector('#tiles').innerText")), "connections")
	ann.screenshot("talk")
	bob.screenshot("phone")
	bob.eval("document.querySelector('#more').click()")
	bob.until("document.querySelectorAll('#loops .loop').length === 2 && getComputedStyle(document.querySelector('#side')).visibility === 'visible' && document.querySelector('#side').getBoundingClientRect().right <= innerWidth + 1")
	bob.screenshot("drawer")
	bob.key("Escape", "", 27)
	bob.until("!document.body.classList.contains('drawer')")
}

// presence: who comes and goes is shown.
func presence(ann, bob *webPage, nc *liner) {
	ann.until("document.querySelector('#here').textContent === '3'")
	nc.say("/quit")
	ann.until("document.querySelector('#here').textContent === '2'")
	bob.says("has left")
}

// A silent page is kicked at its time, and says why; one that talks is not.
func TestBrowserIdle(t *testing.T) {
	slowly(t, "LOOPWHEEL_BROWSER", "it needs Chromium")
	opt := testOptions()
	opt.idle, opt.ping = 4*time.Second, time.Second
	srv, _ := serve(t, opt)
	b := startBrowser(t)
	url := "http://" + srv.Addrs()[0].String() + "/?nick="
	silent := b.open("silent", url+"silent#quiet", 1280, 800, "dark")
	talks := b.open("talks", url+"talks#quiet", 1280, 800, "light")
	silent.says("You have joined quiet")
	talks.says("You have joined quiet")
	silent.eval("window.began = performance.now(); state.ws.addEventListener('close', e => { window.ended = performance.now(); window.code = e.code; }), 0")
	for !closedYet(silent) {
		talks.typeLine("still here")
		talks.eval("new Promise(done => setTimeout(done, 500))")
	}
	silent.until("window.code === 4000")
	silent.says("You were kicked: you said nothing for 4s")
	silent.until("document.querySelector('#banner').innerText.includes('you said nothing for 4s')")
	silent.screenshot("kicked")
	talks.says("silent has left (kicked: idle)")
	talks.until("document.querySelector('#link').classList.contains('on')")
	if took, _ := silent.eval("window.ended - window.began").(float64); took > 4500 {
		t.Errorf("kicked after %.0f ms, want 4 s at most", took)
	}
	silent.eval("document.querySelector('#banner button').click()")
	silent.until("document.querySelector('#link').classList.contains('on')")
	talks.says("silent has joined")
}

func closedYet(p *webPage) bool { return p.eval("!!window.code") == true }
