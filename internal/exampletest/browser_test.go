package exampletest

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/browser"
)

// A tab is the chat's page.
type tab struct{ *browser.Page }

// open opens the page, which says nothing of a connection before somebody has joined.
func open(b *browser.Browser, name, url string, width, height int, scheme string) tab {
	p := tab{b.Open(name, url, "#name", width, height, scheme)}
	p.Until("document.querySelector('#state').textContent === '' && document.querySelector('#refused').textContent === '' && socket === null")
	return p
}

func (p tab) join(name string) {
	p.Eval("document.querySelector('#name').focus()")
	p.TypeLine(name)
}

// says waits until the page shows a text.
func (p tab) says(text string) { p.Until(fmt.Sprintf("document.body.innerText.includes(%q)", text)) }

// Two pages of the chat talk, one of them on a phone. What looks like HTML is text. The server is
// killed and comes back, and so do the pages, with what was said.
func TestBrowser(t *testing.T) {
	needsBrowser(t)
	p := start(t, "chat")
	url, addr := p.says(`open (\S+)`), p.says(`listening on (\S+)`)
	b := browser.Start(t)
	ann, bob := open(b, "chat-ann", url, 1280, 800, "light"), open(b, "chat-bob", url, 390, 844, "dark")
	ann.Screenshot("enter")
	bob.Screenshot("enter")
	ann.join("ann")
	ann.says("1 here")
	bob.join("ann")
	bob.says("somebody else has this name")
	bob.Eval("document.querySelector('#name').value = ''; 0")
	bob.join("bob")
	ann.says("bob has joined")
	const evil = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>`
	ann.TypeLine("hello from the page")
	bob.says("hello from the page")
	bob.TypeLine(evil)
	for _, p := range []tab{ann, bob} {
		p.says(evil)
		p.says("2 here")
		p.Until("!document.querySelector('#log img, #log script') && !window.owned")
	}
	bob.TypeLine(strings.Repeat("wide", 100))
	bob.Until("document.documentElement.scrollWidth <= innerWidth && document.querySelector('#log').scrollWidth <= innerWidth")
	ann.Until("document.querySelectorAll('.message').length === 3")
	ann.Screenshot("talk")
	bob.Screenshot("talk")

	// The policy lets nothing run that is written into the page.
	ann.Until("(document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.owned = 1' })), !window.owned)")

	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	ann.says("trying again")
	p = start(t, "chat", "-addr", addr)
	for _, p := range []tab{ann, bob} {
		p.Until("document.querySelector('#state').textContent === '' && members.size === 2")
	}
	ann.TypeLine("are you back?")
	bob.says("are you back?")
	bob.Eval("document.querySelector('#leave').click()")
	ann.says("bob has left")
	bob.Until("document.querySelector('#chat').hidden && !document.querySelector('#refused').textContent")
	p.ends(syscall.SIGTERM)
}

// A page whose name is rebound to this machine reads nothing of the live page, and closes no
// connection: the browser sends its name.
func TestForeignHostInABrowser(t *testing.T) {
	needsBrowser(t)
	g := start(t, "gateway", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-drain", "0")
	live := g.says(`live page on (\S+),`)
	port := live[strings.LastIndex(strings.TrimSuffix(live, "/"), ":"):]
	b := browser.Start(t)
	own := b.Open("own", live, "#how", 800, 600, "light")
	if got := own.Eval("fetch('/state').then(r => r.status)"); got != 200.0 {
		t.Errorf("/state by the own address: %v", got)
	}
	foreign := tab{b.Open("foreign", "http://evil.example"+port, "body", 800, 600, "light")}
	foreign.says("not served under that name")
	for _, request := range []string{"fetch('/state')", "fetch('/close?loop=0&conn=1', {method: 'POST'})"} {
		if got := foreign.Eval(request + ".then(r => r.status)"); got != 421.0 {
			t.Errorf("%s by a foreign name: %v", request, got)
		}
	}
	g.ends(syscall.SIGTERM)
}

// The pictures of README.md. To make them again:
//
//	LOOPWHEEL_BROWSER=1 LOOPWHEEL_OUT=$PWD/docs go test -count=1 -run Pictures ./internal/exampletest
func TestPictures(t *testing.T) {
	needsBrowser(t)
	g := start(t, "gateway", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-drain", "0")
	live, b := g.says(`live page on (\S+),`), browser.Start(t)
	pages := make(map[string]*browser.Page)
	for _, scheme := range []string{"light", "dark"} {
		pages["live-"+scheme] = b.Open("live-"+scheme, live, "#how", 1200, 720, scheme)
		pages["live-phone-"+scheme] = b.Open("live-phone-"+scheme, live, "#how", 390, 844, scheme)
	}
	stop := make(chan struct{})
	defer close(stop)
	for i := range 300 {
		go device(g.dial(), i, stop)
	}
	c := start(t, "chat")
	url := c.says(`open (\S+)`)
	for _, scheme := range []string{"light", "dark"} {
		room := "?" + scheme // a history of its own
		ann, bob := open(b, "chat-"+scheme, url+room, 1000, 600, scheme), open(b, "chat-phone-"+scheme, url+room, 390, 844, scheme)
		for i, p := range []tab{ann, bob} {
			p.Eval(fmt.Sprintf("document.querySelector('#room').value = '%s'; 0", map[string]string{"light": "harbour", "dark": "lobby"}[scheme]))
			p.join([]string{"ann", "bob"}[i])
		}
		ann.says("bob has joined")
		for i, text := range []string{
			"Is anybody in the harbour?", "Just me. The wind is from the north-west, and the ferry is late again.",
			"Then there is time for a coffee.", "On my way. Ten minutes!",
		} {
			[]tab{ann, bob}[i%2].TypeLine(text)
			[]tab{bob, ann}[i%2].says(text)
		}
		ann.Screenshot("chat")
		bob.Screenshot("chat")
		for _, p := range []tab{ann, bob} {
			p.Eval("document.querySelector('#leave').click()")
		}
	}
	for _, p := range pages {
		p.Until("history.length >= 30 && document.querySelector('#how').textContent")
		p.Screenshot("page")
	}
}

// device is one that reports, more often in some seconds than in others, until stop is closed.
func device(c net.Conn, i int, stop <-chan struct{}) {
	_, _ = c.Write(login(fmt.Sprint("lamp", i)))
	for n := 0; ; n++ {
		pause := time.Duration(200+i) * time.Millisecond
		if time.Now().Unix()/5%2 == 0 {
			pause /= 2
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		if _, err := c.Write(frame('R', 0, binary.BigEndian.AppendUint16(nil, uint16(n)))); err != nil {
			return
		}
	}
}

func needsBrowser(t *testing.T) {
	t.Helper()
	if os.Getenv("LOOPWHEEL_BROWSER") == "" {
		t.Skip("it needs Chromium; to run it set LOOPWHEEL_BROWSER=1, as CI does")
	}
}
