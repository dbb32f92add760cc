//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// A process is the program, running.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	page string
}

// startProcess runs the program with flags until it is killed, or the test ends.
func startProcess(t *testing.T, flags ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], append(flags, "-lines", "tcp://127.0.0.1:0", "-log", "error", "-ping", "1s", "-lease", "2s")...)}
	p.cmd.Env = append(os.Environ(), programEnv+"=1")
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.page = strings.TrimSpace(strings.TrimPrefix(line, "page:"))
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func freeTCP(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// Two people on two processes: they talk, one process is stopped and then killed, and nothing is
// lost, or said twice.
func TestBrowserShared(t *testing.T) {
	slowly(t, "LOOPWHEEL_BROWSER", "it needs Chromium")
	m := miniredis.RunT(t)
	addrs := []string{freeTCP(t), freeTCP(t)}
	var servers []*process
	for i, a := range addrs {
		servers = append(servers, startProcess(t, "-addr", "tcp://"+a, "-redis", m.Addr(), "-also", "http://"+addrs[1-i]))
	}
	b := startBrowser(t)
	ann := b.open("shared-ann", servers[0].page+"?nick=ann#lobby", 1280, 800, "light")
	ann.says("You have joined lobby")
	bob := b.open("shared-bob", servers[1].page+"?nick=bob#lobby", 390, 844, "dark")
	bob.says("You have joined lobby")
	ann.says("bob has joined")
	ann.typeLine("hello from one process")
	bob.says("hello from one process")
	bob.typeLine("and from another")
	ann.says("and from another")
	for _, p := range []*webPage{ann, bob} {
		p.until("document.querySelector('#here').textContent === '2'")
	}
	bob.eval("box.focus()")
	bob.call("Input.insertText", params{"text": "ann, l"})
	ann.until("document.querySelector('#typing').textContent.includes('bob is typing')")
	bob.typeLine("ook: https://example.com/a?b=1.")
	ann.until("document.querySelector('.mention a').href === 'https://example.com/a?b=1'")
	ann.screenshot("talk")

	servers[0].signal(syscall.SIGSTOP) // its connections stay, and say nothing
	ann.typeLine("typed while it was stopped")
	ann.until("document.querySelector('.pending')")
	bob.typeLine("said meanwhile")
	bob.says("typed while it was stopped")
	ann.says("said meanwhile")
	ann.until("!document.querySelector('.pending') && state.nick === 'ann' && state.server % 2 === 1")
	ann.screenshot("moved")
	servers[0].kill()
	ann.typeLine("still ann")
	bob.says("still ann")
	for _, p := range []*webPage{ann, bob} {
		p.until("document.querySelector('#here').textContent === '2'")
		for _, text := range []string{"hello from one process", "typed while it was stopped", "said meanwhile", "still ann"} {
			p.until(fmt.Sprintf("[...document.querySelectorAll('.msg p')].filter(n => n.textContent === %q).length === 1", text))
		}
	}

	servers[0] = startProcess(t, "-addr", "tcp://"+addrs[0], "-redis", m.Addr(), "-also", "http://"+addrs[1])
	servers[1].kill() // and back
	ann.typeLine("back on the first")
	bob.says("back on the first")
	for _, p := range []*webPage{ann, bob} {
		p.until("document.querySelector('#here').textContent === '2' && document.querySelector('#banner').hidden")
	}
}

// What was seen to be wrong with the page.
func TestBrowserFaults(t *testing.T) {
	slowly(t, "LOOPWHEEL_BROWSER", "it needs Chromium")
	srv, _ := serve(t, testOptions())
	url := "http://" + srv.Addrs()[0].String() + "/"
	b := startBrowser(t)

	odd := b.open("odd", url+"?nick=odd#%zz", 320, 640, "dark") // an address that is not well-formed
	odd.says("You have joined %zz")
	odd.until("document.documentElement.scrollWidth <= innerWidth") // a phone
	odd.typeLine(strings.Repeat("wide", 100))
	odd.until("document.querySelectorAll('.msg:not(.pending)').length === 1 && document.documentElement.scrollWidth <= innerWidth && document.querySelector('#log').scrollWidth <= innerWidth")

	bad := b.open("bad", url+"?nick=a%E2%80%8Bb#lobby", 1280, 800, "light") // an invisible character
	bad.until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('invisible')")
	bad.screenshot("name")
	bad.typeLine("odd") // is somebody else
	bad.until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('somebody else')")
	bad.typeLine("good")
	bad.says("You have joined lobby")

	bad.typeLine("/who")
	bad.says("In lobby: good")
	bad.until(`(() => { for (let h = 0; h < 360; h++) {
		if ([['.5', [1, 1, 1], -.01, .55], ['.42', pageLight, -.01, .6], ['.66', pageDark, .01, .75]].some(([l, against, step, s]) =>
			contrast(readable(h, s, +l, step, against).match(/\d+/g).map(v => v / 255), against) < 4.5)) return false;
	} return true })()`)
	for i := range 60 {
		bad.typeLine(fmt.Sprintf("line %d", i))
	}
	bad.says("line 59")
	bad.until("!document.querySelector('.msg.pending')") // each one's own scrolls to the end
	bad.eval("document.querySelector('#log').scrollTop = 0")
	bad.until("document.querySelector('#log').scrollTop === 0")
	odd.eval("post('/join lobby')")
	odd.says("You have joined lobby")
	odd.typeLine("from another")
	bad.until("!document.querySelector('#newer').hidden")
	bad.typeLine("my own") // is in sight
	bad.until("atEnd() && [...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'my own'")
	bad.call("Input.insertText", params{"text": "two\nlines"})
	bad.key("Enter", "\r", 13)
	odd.says("two\nlines")
	quiet(bad, odd)
	drawers(odd)
	leaving(bad, odd, url)
}

// quiet: what changes all the time is not read out.
func quiet(bad, odd *webPage) {
	bad.until("!document.querySelector('#link').closest('[role=status], [aria-live]')")
	odd.eval("post('/join other')")
	odd.says("You have joined other")
	bad.typeLine("unread 1")
	bad.typeLine("unread 2")
	bad.until("[...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'unread 2'")
	odd.eval("send('/rooms')")
	odd.until("[...document.querySelectorAll('#rooms button')].some(b => b.textContent.includes('#lobby') && b.querySelector('b') && b.querySelector('b').textContent === '2')")
	for range 12 {
		bad.eval("post('/remind 24h x')")
	}
	bad.says("you have 10 reminders pending already")
}

// drawers: the focus goes into the drawer, and comes back.
func drawers(phone *webPage) {
	phone.eval("document.querySelector('#more').click()")
	phone.until("document.querySelector('#side').contains(document.activeElement) && document.querySelector('main').inert")
	phone.screenshot("drawer")
	phone.key("Escape", "", 27)
	phone.until("document.activeElement.id === 'more' && !document.querySelector('main').inert && document.querySelector('#side').inert")
}

// leaving: a page that is left is gone at once, and has its name back when it returns.
func leaving(bad, odd *webPage, url string) {
	odd.eval("post('/join lobby')")
	odd.says("You have joined lobby")
	bad.eval("location.href = 'about:blank'; 0")
	odd.says("good has left")
	odd.until("document.querySelector('#here').textContent === '1'")
	bad.call("Page.navigate", params{"url": url + "?nick=good#lobby"})
	odd.says("good has joined")
	odd.until("document.querySelector('#here').textContent === '2'")
}
