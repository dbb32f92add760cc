package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/chromedp/chromedp/kb"

	"github.com/loopwheel/loopwheel/demos/internal/browser"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A webPage is a window with the chat in it.
type webPage struct{ *browser.Page }

// open opens the page of the chat.
func open(b *browser.Browser, name, url string, width, height int64, scheme string) webPage {
	return webPage{b.Open("chat-"+name, url, "#say", width, height, scheme)}
}

// says waits until the text is in the log.
func (p webPage) says(text string) {
	p.Says("#log", text)
}

// saysOnce waits until there is one message with the text.
func (p webPage) saysOnce(text string) {
	p.Until(fmt.Sprintf("[...document.querySelectorAll('.msg p')].filter(n => n.textContent === %q).length === 1", text))
}

func (r *running) page() string { return "http://" + r.srv.Addrs()[0].String() + "/" }

// Two pages and one who came by lines, in one room. The server restarts, and they come back.
func TestBrowser(t *testing.T) {
	b := browser.Start(t)
	m := miniredis.RunT(t)
	opt := testOptions()
	opt.ping = time.Second
	r := serve(t, m.Addr(), opt)
	opt.web, opt.lines = "tcp://"+r.srv.Addrs()[0].String(), "tcp://"+r.srv.Addrs()[1].String()

	ann := open(b, "ann", r.page(), 1280, 800, "light")
	ann.Until("document.querySelector('#enter').open && document.activeElement.id === 'nick'")
	ann.Screenshot("enter")
	ann.Accessible("before the join")
	ann.TypeLine("Ann")
	ann.says("You have joined lobby")
	bob := open(b, "bob", r.page()+"?nick=bob#lobby", 390, 844, "dark")
	bob.says("You have joined lobby")
	nc := r.dialLines(t)
	nc.say("/nick carl")
	nc.hears(" is now carl")
	talk(ann, bob, nc)
	harmless(ann, bob, nc)
	ann.Until("/ms$/.test(document.querySelector('#link b').textContent)")
	ann.Until("!document.querySelector('#idle').hidden && document.querySelector('#idle b').textContent.length > 0")
	ann.Screenshot("talk")
	bob.Screenshot("phone")
	for _, p := range []webPage{ann, bob} {
		p.Accessible("in a room")
	}
	presence(ann, bob, nc)
	still(t, r, ann)

	r.stop() // the pages say so, and come back by themselves
	ann.Until("/Trying again in \\d/.test(document.querySelector('#banner').textContent) && !/Trying/.test(document.querySelector('#banner [role=alert]').textContent)")
	ann.Screenshot("restart")
	ann.Accessible("without a server")
	r = serve(t, m.Addr(), opt)
	for _, p := range []webPage{ann, bob} {
		p.says("connected again")
		p.Until("document.querySelector('#link').classList.contains('on') && document.querySelector('#banner').hidden")
	}
	ann.Until("document.querySelector('#here').textContent === '2'")
	ann.TypeLine("are you back?")
	bob.says("are you back?")
	ann.Insert("half a sentence")
	ann.Eval("location.reload(); 0")
	ann.Until("state.joined && state.nick === 'ann' && !document.querySelector('#enter').open && box.value === 'half a sentence'")
	ann.saysOnce("are you back?")
	ann.saysOnce("only for you") // of which the server remembers nothing
	nc = r.dialLines(t)
	line := nc.hears("] <ann> are you back?")
	if at, err := time.Parse("[15:04", line[:6]); err != nil || !saidLately(at) {
		t.Errorf("heard %q, want the time of day before it", line)
	}
}

// still: a list holds still while the pointer is in it, and what is typed is kept.
func still(t *testing.T, r *running, ann webPage) {
	ann.Eval("box.value = 'my draft', 0")
	x, y := ann.Point("document.querySelector('#people [data-name=bob]')")
	aaron := r.dialLines(t)
	aaron.say("/nick aaron")
	ann.says("is now aaron")
	ann.Until("document.querySelector('#here').textContent === '3'")
	ann.Until(fmt.Sprintf("document.elementFromPoint(%f, %f).closest('button').dataset.name === 'bob'", x, y))
	ann.Click(x, y)
	ann.Until("box.value === '/msg bob my draft' && document.activeElement === box")
	ann.Point("document.querySelector('#log')")
	ann.Until("!!document.querySelector('#people [data-name=aaron]')")
	aaron.say("/quit")
	ann.Until("document.querySelector('#here').textContent === '2' && (box.value = '') === ''")
}

// saidLately reports whether a minute of the day is not long ago.
func saidLately(minute time.Time) bool {
	now := time.Now().UTC()
	ago := time.Duration(now.Hour()*60+now.Minute()-minute.Hour()*60-minute.Minute()) * time.Minute
	return (ago+24*time.Hour)%(24*time.Hour) <= 5*time.Minute
}

// talk: messages cross, in all directions.
func talk(ann, bob webPage, nc *liner) {
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
	bob.Until("!document.querySelector('.pending')")
	nc.say("/msg bob psst")
	bob.says("psst")
	bob.Eval("box.value = '', box.focus()")
	bob.Insert("ann, l")
	ann.Until("document.querySelector('#typing').textContent.includes('bob is typing')")
	bob.TypeLine("ook: https://example.com/a?b=1.")
	ann.Until("document.querySelector('.mention a').href === 'https://example.com/a?b=1'")
}

// harmless: what looks like HTML is text, in nicknames too, and nothing of it runs.
func harmless(ann, bob webPage, nc *liner) {
	const evil = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>`
	nc.say("/nick <b>carl")
	nc.say("%s", evil)
	for _, p := range []webPage{ann, bob} {
		p.says("carl is now <b>carl")
		p.says(evil)
		p.Until("![...document.querySelectorAll('#log img, #log script, #log b')].length && !window.owned")
		p.Until("(document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.owned = 1' })), !window.owned)")
	}
}

// presence: who comes and goes is shown.
func presence(ann, bob webPage, nc *liner) {
	ann.Until("document.querySelector('#here').textContent === '3'")
	nc.say("/quit")
	ann.Until("document.querySelector('#here').textContent === '2'")
	bob.says("has left")
}

// The same over TLS, with a certificate that the browser trusts.
func TestBrowserTLS(t *testing.T) {
	b := browser.Start(t)
	r := serve(t, miniredis.RunT(t).Addr(), secureOptions(t))
	url := "https://" + r.srv.Addrs()[0].String() + "/?nick="
	ann, bob := open(b, "tls-ann", url+"ann#lobby", 1280, 800, "light"), open(b, "tls-bob", url+"bob#lobby", 390, 844, "dark")
	for _, p := range []webPage{ann, bob} {
		p.says("You have joined lobby")
		p.Until("state.ws.url.startsWith('wss://') && document.querySelector('#link').classList.contains('on')")
	}
	nc := r.dialLines(t)
	nc.say("/nick carl")
	nc.hears(" is now carl")
	talk(ann, bob, nc)
	presence(ann, bob, nc)
	r.stop()
	ann.Until("!document.querySelector('#banner').hidden")
}

// Two people on two processes: they talk, one process is stopped and then killed, and nothing is
// lost, or said twice.
func TestBrowserShared(t *testing.T) {
	b := browser.Start(t)
	m := miniredis.RunT(t)
	addrs := []string{testkit.FreeAddr(t), testkit.FreeAddr(t)}
	start := func(i int) *process {
		return startProcess(t, "-addr", "tcp://"+addrs[i], "-redis", m.Addr(), "-also", "http://"+addrs[1-i], "-ping", "1s", "-lease", "2s")
	}
	servers := []*process{start(0), start(1)}
	ann, bob := open(b, "shared-ann", servers[0].page+"?nick=ann#lobby", 1280, 800, "light"), open(b, "shared-bob", servers[1].page+"?nick=bob#lobby", 390, 844, "dark")
	both := []webPage{ann, bob}
	for _, p := range both {
		p.says("You have joined lobby")
		p.Until("document.querySelector('#here').textContent === '2'")
	}
	ann.TypeLine("hello from one process")
	bob.says("hello from one process")
	bob.TypeLine("and from another")
	ann.says("and from another")

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
	for _, p := range both {
		p.Until("document.querySelector('#here').textContent === '2'")
		for _, text := range []string{"hello from one process", "typed while it was stopped", "said meanwhile", "still ann"} {
			p.saysOnce(text)
		}
	}

	servers[0] = start(0)
	servers[1].kill() // and back
	ann.TypeLine("back on the first")
	bob.says("back on the first")
	for _, p := range both {
		p.Until("document.querySelector('#here').textContent === '2' && document.querySelector('#banner').hidden")
	}

	// The only server hangs, and dies. What was typed meanwhile is shown as not sent, and is sent when
	// a server is back.
	servers[0].signal(syscall.SIGSTOP)
	ann.TypeLine("typed while it hangs")
	bob.TypeLine("/msg ann whispered while it hangs")
	for _, p := range both {
		p.Until("getComputedStyle(document.querySelector('.pending:not(.failed) p'), '::after').visibility === 'visible'") // "not sent yet"
	}
	servers[0].kill()
	ann.Until("!document.querySelector('#banner').hidden")
	ann.TypeLine("typed while there is none")
	servers[0] = start(0)
	for _, text := range []string{"typed while it hangs", "typed while there is none"} {
		ann.saysOnce(text)
		bob.saysOnce(text)
	}
	bob.Until("!document.querySelector('.pending:not(.failed)')") // said, or failed, as ann may have come later
}

// A silent page is sent away at its time, and says why; one that talks is not.
func TestBrowserIdle(t *testing.T) {
	b := browser.Start(t)
	opt := testOptions()
	opt.idle, opt.ping = 15*time.Second, time.Second
	r := serve(t, miniredis.RunT(t).Addr(), opt)
	talks := open(b, "talks", r.page()+"?nick=talks#quiet", 1280, 800, "light")
	talks.says("You have joined quiet")
	talks.Eval("window.talking = setInterval(() => post('still here'), 1000)")
	silent := open(b, "silent", r.page()+"?nick=silent#quiet", 1280, 800, "dark")
	silent.says("You were sent away: you said nothing for 15s")
	silent.Until("document.querySelector('#banner').innerText.includes('you said nothing for 15s')")
	silent.Screenshot("sent-away")
	talks.says("silent has left")
	talks.Until("document.querySelector('#link').classList.contains('on')")
	silent.Eval("document.querySelector('#banner button').click()")
	silent.Until("document.querySelector('#link').classList.contains('on')")
	talks.says("silent has joined")
}

// What was seen to be wrong with the page.
func TestBrowserFaults(t *testing.T) {
	b := browser.Start(t)
	opt := testOptions()
	opt.rooms = 3
	r := serve(t, miniredis.RunT(t).Addr(), opt)
	odd := open(b, "odd", r.page()+"?nick=odd#%zz", 320, 640, "dark") // an address that is not well-formed
	odd.says("You have joined %zz")
	odd.Until("document.documentElement.scrollWidth <= innerWidth") // a phone
	odd.TypeLine(strings.Repeat("wide", 100))
	odd.Until("document.querySelectorAll('.msg:not(.pending)').length === 1 && document.documentElement.scrollWidth <= innerWidth && document.querySelector('#log').scrollWidth <= innerWidth")

	bad := open(b, "bad", r.page()+"?nick=a%E2%80%8Bb#lobby", 1280, 800, "light") // an invisible character
	bad.Until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('cannot be seen')")
	bad.Screenshot("name")
	bad.TypeLine("odd")
	bad.Until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('somebody else')")
	bad.TypeLine("हिन्दी हिन्दी हिन्दी हिन्दी") // is not cut
	bad.Until("document.querySelector('#enter').open && document.querySelector('#wrong').textContent.includes('at most 24 characters, this one has 27')")
	bad.TypeLine("हिन्दी")
	bad.says("You have joined lobby")
	bad.TypeLine("/who")
	bad.says("In lobby: हिन्दी")
	bad.Until(`(() => { for (let h = 0; h < 360; h++) {
		if ([['.5', [1, 1, 1], -.01, .55], ['.42', pageLight, -.01, .6], ['.66', pageDark, .01, .75]].some(([l, against, step, s]) =>
			contrast(readable(h, s, +l, step, against).match(/\d+/g).map(v => v / 255), against) < 4.5)) return false;
	} return true })()`)
	long(bad, odd)
	scrolls(bad, odd)
	quiet(bad, odd)
	drawers(odd)
	odd.Eval("post('/join five')")
	odd.says("five cannot be entered: there are too many rooms already")
	odd.Until("state.room === 'other'")
	leaving(bad, odd, r.page())
}

// long: a message that is too long is neither sent nor cut, and one that is not is sent whole.
func long(bad, odd webPage) {
	text := strings.Repeat("é", maxText)
	bad.Insert(text + "e\u0301")
	bad.Key(kb.Enter)
	bad.Says("#long", "A message has at most 1000 characters, this one has 1002.")
	bad.Until("box.value.length === 1002")
	bad.Key(kb.Backspace) // the mark
	bad.Key(kb.Backspace)
	bad.Until("document.querySelector('#long').textContent === ''")
	bad.Key(kb.Enter)
	odd.Eval("post('/join lobby')")
	odd.saysOnce(text)
	bad.Until("document.querySelector('.msg .face').textContent === 'हि' && document.querySelector('.msg .face').ariaHidden === 'true'")
}

// scrolls: what is new is in sight for those who wrote it, and announced to those who read above.
func scrolls(bad, odd webPage) {
	for i := range 60 {
		bad.TypeLine(fmt.Sprintf("line %d", i))
	}
	bad.says("line 59")
	bad.Until("!document.querySelector('.msg.pending')") // each one's own scrolls to the end
	bad.Eval("document.querySelector('#log').scrollTop = 0")
	bad.Until("document.querySelector('#log').scrollTop === 0")
	odd.TypeLine("from another")
	bad.Until("!document.querySelector('#newer').hidden")
	bad.TypeLine("my own") // is in sight
	bad.Until("atEnd() && [...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'my own'")
	bad.Insert("two\nlines")
	bad.Key(kb.Enter)
	odd.says("two\nlines")
}

// quiet: what changes all the time is not read out, and what is unread is counted.
func quiet(bad, odd webPage) {
	bad.Until("!document.querySelector('#link').closest('[role=status], [aria-live]')")
	// Redis learns once a second how much was said: until then a page does not know how much it has seen.
	odd.Eval("window.before = state.rooms; 0")
	odd.Until("send('/rooms') && state.rooms !== before && state.seen.lobby === 64") // 60 of them are lines
	odd.Eval("post('/join other')")
	odd.says("You have joined other")
	bad.TypeLine("unread 1")
	bad.TypeLine("unread 2")
	bad.Until("[...document.querySelectorAll('.msg:not(.pending) p')].at(-1).textContent === 'unread 2'")
	odd.Until("send('/rooms') && [...document.querySelectorAll('#rooms button')].some(b => b.textContent.includes('#lobby') && b.querySelector('b') && b.querySelector('b').textContent === '2')")
}

// drawers: the focus goes into the drawer, and comes back.
func drawers(phone webPage) {
	phone.Eval("document.querySelector('#more').click()")
	phone.Until("document.querySelector('#side').contains(document.activeElement) && document.querySelector('main').inert")
	phone.Screenshot("drawer")
	phone.Accessible("the drawer")
	phone.Key(kb.Escape)
	phone.Until("document.activeElement.id === 'more' && !document.querySelector('main').inert && document.querySelector('#side').inert")
}

// leaving: a page that is left is gone at once, and has its name back when it returns.
func leaving(bad, odd webPage, url string) {
	odd.Eval("post('/join lobby')")
	odd.says("You have joined lobby")
	bad.Navigate("about:blank")
	odd.says("हिन्दी has left")
	odd.Until("document.querySelector('#here').textContent === '1'")
	bad.Navigate(url + "?nick=हिन्दी#lobby")
	odd.says("हिन्दी has joined")
	odd.Until("document.querySelector('#here').textContent === '2'")
}
