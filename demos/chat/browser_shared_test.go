//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/chromedp/chromedp/kb"

	"github.com/loopwheel/loopwheel/demos/internal/browser"
	"github.com/loopwheel/loopwheel/internal/freeport"
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

// Two people on two processes: they talk, one process is stopped and then killed, and nothing is
// lost, or said twice.
func TestBrowserShared(t *testing.T) {
	b := browser.Start(t)
	m := miniredis.RunT(t)
	addrs := []string{freeport.Addr(t), freeport.Addr(t)}
	var servers []*process
	for i, a := range addrs {
		servers = append(servers, startProcess(t, "-addr", "tcp://"+a, "-redis", m.Addr(), "-also", "http://"+addrs[1-i]))
	}
	ann := open(b, "shared-ann", servers[0].page+"?nick=ann#lobby", 1280, 800, "light")
	ann.says("You have joined lobby")
	bob := open(b, "shared-bob", servers[1].page+"?nick=bob#lobby", 390, 844, "dark")
	bob.says("You have joined lobby")
	ann.says("bob has joined")
	ann.TypeLine("hello from one process")
	bob.says("hello from one process")
	bob.TypeLine("and from another")
	ann.says("and from another")
	for _, p := range []*webPage{ann, bob} {
		p.Until("document.querySelector('#here').textContent === '2'")
	}
	bob.Eval("box.focus()")
	bob.Insert("ann, l")
	ann.Until("document.querySelector('#typing').textContent.includes('bob is typing')")
	bob.TypeLine("ook: https://example.com/a?b=1.")
	ann.Until("document.querySelector('.mention a').href === 'https://example.com/a?b=1'")
	ann.Screenshot("talk")

	servers[0].signal(syscall.SIGSTOP) // its connections stay, and say nothing
	ann.TypeLine("typed while it was stopped")
	ann.Until("document.querySelector('.pending')")
	bob.TypeLine("said meanwhile")
	bob.says("typed while it was stopped")
	ann.says("said meanwhile")
	ann.Until("!document.querySelector('.pending') && state.nick === 'ann' && state.server % 2 === 1")
	ann.Screenshot("moved")
	servers[0].kill()
	ann.TypeLine("still ann")
	bob.says("still ann")
	for _, p := range []*webPage{ann, bob} {
		p.Until("document.querySelector('#here').textContent === '2'")
		for _, text := range []string{"hello from one process", "typed while it was stopped", "said meanwhile", "still ann"} {
			p.Until(fmt.Sprintf("[...document.querySelectorAll('.msg p')].filter(n => n.textContent === %q).length === 1", text))
		}
	}

	servers[0] = startProcess(t, "-addr", "tcp://"+addrs[0], "-redis", m.Addr(), "-also", "http://"+addrs[1])
	servers[1].kill() // and back
	ann.TypeLine("back on the first")
	bob.says("back on the first")
	for _, p := range []*webPage{ann, bob} {
		p.Until("document.querySelector('#here').textContent === '2' && document.querySelector('#banner').hidden")
	}
}

// What was seen to be wrong with the page.
func TestBrowserFaults(t *testing.T) {
	b := browser.Start(t)
	srv, _ := serve(t, testOptions())
	url := "http://" + srv.Addrs()[0].String() + "/"

	odd := open(b, "odd", url+"?nick=odd#%zz", 320, 640, "dark") // an address that is not well-formed
	odd.says("You have joined %zz")
	odd.Until("document.documentElement.scrollWidth <= innerWidth") // a phone
	odd.TypeLine(strings.Repeat("wide", 100))
	odd.Until("document.querySelectorAll('.msg:not(.pending)').length === 1 && document.documentElement.scrollWidth <= innerWidth && document.querySelector('#log').scrollWidth <= innerWidth")

	bad := open(b, "bad", url+"?nick=a%E2%80%8Bb#lobby", 1280, 800, "light") // an invisible character
	bad.Until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('invisible')")
	bad.Screenshot("name")
	bad.TypeLine("odd") // is somebody else
	bad.Until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('somebody else')")
	bad.TypeLine("good")
	bad.says("You have joined lobby")

	bad.TypeLine("/who")
	bad.says("In lobby: good")
	bad.Until(`(() => { for (let h = 0; h < 360; h++) {
		if ([['.5', [1, 1, 1], -.01, .55], ['.42', pageLight, -.01, .6], ['.66', pageDark, .01, .75]].some(([l, against, step, s]) =>
			contrast(readable(h, s, +l, step, against).match(/\d+/g).map(v => v / 255), against) < 4.5)) return false;
	} return true })()`)
	for i := range 60 {
		bad.TypeLine(fmt.Sprintf("line %d", i))
	}
	bad.says("line 59")
	bad.Until("!document.querySelector('.msg.pending')") // each one's own scrolls to the end
	bad.Eval("document.querySelector('#log').scrollTop = 0")
	bad.Until("document.querySelector('#log').scrollTop === 0")
	odd.Eval("post('/join lobby')")
	odd.says("You have joined lobby")
	odd.TypeLine("from another")
	bad.Until("!document.querySelector('#newer').hidden")
	bad.TypeLine("my own") // is in sight
	bad.Until("atEnd() && [...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'my own'")
	bad.Insert("two\nlines")
	bad.Key(kb.Enter)
	odd.says("two\nlines")
	quiet(bad, odd)
	drawers(odd)
	leaving(bad, odd, url)
}

// quiet: what changes all the time is not read out.
func quiet(bad, odd *webPage) {
	bad.Until("!document.querySelector('#link').closest('[role=status], [aria-live]')")
	odd.Eval("post('/join other')")
	odd.says("You have joined other")
	bad.TypeLine("unread 1")
	bad.TypeLine("unread 2")
	bad.Until("[...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'unread 2'")
	odd.Eval("send('/rooms')")
	odd.Until("[...document.querySelectorAll('#rooms button')].some(b => b.textContent.includes('#lobby') && b.querySelector('b') && b.querySelector('b').textContent === '2')")
	for range 12 {
		bad.Eval("post('/remind 24h x')")
	}
	bad.says("you have 10 reminders pending already")
}

// drawers: the focus goes into the drawer, and comes back.
func drawers(phone *webPage) {
	phone.Eval("document.querySelector('#more').click()")
	phone.Until("document.querySelector('#side').contains(document.activeElement) && document.querySelector('main').inert")
	phone.Screenshot("drawer")
	phone.Key(kb.Escape)
	phone.Until("document.activeElement.id === 'more' && !document.querySelector('main').inert && document.querySelector('#side').inert")
}

// leaving: a page that is left is gone at once, and has its name back when it returns.
func leaving(bad, odd *webPage, url string) {
	odd.Eval("post('/join lobby')")
	odd.says("You have joined lobby")
	bad.Eval("location.href = 'about:blank'; 0")
	odd.says("good has left")
	odd.Until("document.querySelector('#here').textContent === '1'")
	bad.Navigate(url + "?nick=good#lobby")
	odd.says("good has joined")
	odd.Until("document.querySelector('#here').textContent === '2'")
}
