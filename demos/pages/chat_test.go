package pages

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/demos/internal/browser"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A tab is the chat's page.
type tab struct{ *browser.Page }

// open opens the page, which says nothing of a connection before somebody has joined.
func open(b *browser.Browser, name, url string, width, height int64, scheme string) tab {
	p := tab{b.Open(name, url, "#name", width, height, scheme)}
	p.Until("document.querySelector('#state').textContent === '' && document.querySelector('#refused').textContent === '' && socket === null")
	return p
}

func (p tab) join(name string) {
	p.Eval("document.querySelector('#name').focus()")
	p.TypeLine(name)
}

// says waits until the page shows a text.
func (p tab) says(text string) { p.Says("body", text) }

// Two pages of the chat talk, one of them on a phone. What looks like HTML is text. The server is
// killed and comes back, and so do the pages, with what was said.
func TestChat(t *testing.T) {
	b := browser.Start(t)
	program := buildChat(t)
	p := start(t, program)
	url, addr := p.says(`open (\S+)`), p.says(`listening on (\S+)`)
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
	p = start(t, program, "-addr", addr)
	for _, p := range []tab{ann, bob} {
		p.Until("document.querySelector('#state').textContent === '' && members.size === 2")
	}
	ann.TypeLine("are you back?")
	bob.says("are you back?")
	bob.Eval("document.querySelector('#leave').click()")
	ann.says("bob has left")
	bob.Until("document.querySelector('#chat').hidden && !document.querySelector('#refused').textContent")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v: %s", err, &p.said)
	}
}

// buildChat builds the chat, as a user would, and returns the program's file.
func buildChat(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "chat")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./examples/chat").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// A program runs until stop is called, or the test ends.
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

func start(t *testing.T, file string, flags ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(file, append([]string{"-addr", "tcp://127.0.0.1:0"}, flags...)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// says waits until the program has said what a pattern describes, and returns its first group.
func (p *program) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var m []string
	testkit.Eventually(p.t, "it says "+pattern, func() bool {
		m = re.FindStringSubmatch(p.said.String())
		return m != nil
	})
	return m[1]
}

// The pictures of README.md. To make them again:
//
//	LOOPWHEEL_BROWSER=1 LOOPWHEEL_OUT=$PWD/docs go test -C demos -count=1 -run Pictures ./pages
func TestChatPictures(t *testing.T) {
	b := browser.Start(t)
	url := start(t, buildChat(t)).says(`open (\S+)`)
	for _, scheme := range []string{"light", "dark"} {
		ann, bob := open(b, "chat-"+scheme, url, 1000, 600, scheme), open(b, "chat-phone-"+scheme, url, 390, 844, scheme)
		room := map[string]string{"light": "harbour", "dark": "lobby"}[scheme] // a history of its own
		for i, p := range []tab{ann, bob} {
			p.Eval(fmt.Sprintf("document.querySelector('#room').value = '%s'; 0", room))
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
}
