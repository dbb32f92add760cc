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

	"github.com/chromedp/chromedp/kb"

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
	program := build(t, "chat")
	p := start(t, program)
	url, addr := p.says(`open (\S+)`), p.says(`listening on (\S+)`)
	ann, bob := open(b, "chat-ann", url, 1280, 800, "light"), open(b, "chat-bob", url, 390, 844, "dark")
	for _, p := range []tab{ann, bob} {
		p.Screenshot("enter")
		p.Accessible("before the join")
	}
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
	for _, p := range []tab{ann, bob} {
		p.Screenshot("talk")
		p.Accessible("in a room")
		p.Until("[...document.querySelectorAll('.face')].every(e => e.ariaHidden === 'true')")
		if got := p.Eval(unreadable); got != "" {
			t.Errorf("these hues cannot be read: %v", got)
		}
	}

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

// unreadable lists the hues whose names or faces have a contrast below 4.5 to 1.
const unreadable = `(() => {
	const g = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
	const light = color => {
		g.fillStyle = color;
		g.fillRect(0, 0, 1, 1);
		const [r, g2, b] = [...g.getImageData(0, 0, 1, 1).data].map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
		return .2126 * r + .7152 * g2 + .0722 * b + .05;
	};
	const contrast = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
	const m = message(me.name, 0, 'x'), name = m.querySelector('b'), face = m.querySelector('.face'), bad = [];
	m.classList.add('mine'); // on which there is less contrast
	document.querySelector('#log').append(m);
	for (let hue = 0; hue < 360; hue++) {
		for (const e of [m, face]) e.style.setProperty('--hue', hue);
		const f = getComputedStyle(face);
		if (contrast(getComputedStyle(name).color, getComputedStyle(m).backgroundColor) < 4.5 || contrast(f.color, f.backgroundColor) < 4.5) bad.push(hue);
	}
	m.remove();
	return bad.join(' ');
})()`

// A page says at once that it connects, though the server hangs. What is said meanwhile is shown as
// not sent, and is sent when a server is back. A reload keeps name, messages and draft, though the
// new server remembers nothing.
func TestChatKeeps(t *testing.T) {
	b := browser.Start(t)
	file := build(t, "chat")
	p := start(t, file)
	url, addr := p.says(`open (\S+)`), p.says(`listening on (\S+)`)
	ann, bob, cid := open(b, "keeps-ann", url, 1400, 900, "light"), open(b, "keeps-bob", url, 820, 900, "dark"), open(b, "keeps-cid", url, 390, 844, "light")
	ann.join("हिन्दी")
	bob.join("bob")
	ann.says("bob has joined")
	long := strings.Repeat("é", 2000)
	ann.Insert(long + "é")
	ann.Key(kb.Enter)
	ann.Until("document.querySelector('#text').validationMessage.includes('this one has 2001') && !document.querySelector('.waiting')")
	ann.Key(kb.Backspace)
	ann.Key(kb.Enter)
	for _, p := range []tab{ann, bob} {
		p.Until(fmt.Sprintf("[...document.querySelectorAll('.message:not(.waiting) p')].some(p => p.textContent === %q)", long))
	}
	ann.TypeLine("before")
	bob.says("before")

	ann.Eval("connect(); 0") // its old connection is open, and it has its name by its key
	ann.Until("socket.readyState === WebSocket.OPEN && document.querySelector('#state').textContent === ''")

	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cid.join("cid")
	cid.Until("document.querySelector('#refused').textContent === 'connecting …'")
	cid.Screenshot("connecting")
	ann.TypeLine("while it hangs")
	ann.Until("getComputedStyle(document.querySelector('.waiting p'), '::after').visibility === 'visible'") // "not sent yet"
	ann.Screenshot("waiting")
	cid.Until("document.querySelector('#refused').textContent.includes('the server does not answer')")
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	ann.says("connection lost")
	ann.TypeLine("while there is none")
	start(t, file, "-addr", addr)
	for _, text := range []string{"while it hangs", "while there is none"} {
		for _, p := range []tab{ann, bob} {
			p.Until(fmt.Sprintf("[...document.querySelectorAll('.message:not(.waiting) p')].filter(p => p.textContent === %q).length === 1", text))
		}
	}
	cid.says("3 here")

	ann.Insert("half a sen")
	for range 2 {
		ann.Eval("location.reload(); 0")
		ann.Until("joined && document.querySelector('#state').textContent === '' && members.size === 3 && document.querySelector('#text').value === 'half a sen'")
		for _, text := range []string{long, "before", "while it hangs", "while there is none"} {
			ann.Until(fmt.Sprintf("[...document.querySelectorAll('.message p')].filter(p => p.textContent === %q).length === 1", text))
		}
	}
	ann.Eval("document.querySelector('#text').focus()")
	ann.TypeLine("tence")
	bob.says("half a sentence")
	for _, p := range []tab{ann, bob, cid} {
		p.Screenshot("talk")
		p.Accessible("in a room")
		p.Until("document.documentElement.scrollWidth <= innerWidth")
	}
}

// build builds an example, as a user would, and returns the program's file.
func build(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./examples/"+name).CombinedOutput(); err != nil {
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
	chat := build(t, "chat")
	for _, scheme := range []string{"light", "dark"} {
		url := start(t, chat).says(`open (\S+)`)
		ann, bob := open(b, "chat-"+scheme, url, 1000, 600, scheme), open(b, "chat-phone-"+scheme, url, 390, 844, scheme)
		for i, p := range []tab{ann, bob} {
			p.Eval("document.querySelector('#room').value = 'harbour'; 0")
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
