package main

import (
	"os"
	"testing"

	"github.com/loopwheel/loopwheel/internal/browser"
)

// The page in a real browser: tasks are added with the form, are seen ahead, run, die and are
// requeued.
func TestBrowser(t *testing.T) {
	if os.Getenv("LOOPWHEEL_BROWSER") == "" {
		t.Skip("it needs Chromium; to run it set LOOPWHEEL_BROWSER=1, as CI does")
	}
	url, stop := start(t, "-attempts", "1")
	defer stop()
	b := browser.Start(t)
	p := b.Open("delay-page", url+"/", "#add", 1200, 900, "light")
	p.Until("document.querySelector('#link').classList.contains('on') && !!document.querySelector('.tile')")
	add := func(key, delay, body string) {
		t.Helper()
		for name, value := range map[string]string{"key": key, "delay": delay, "body": body} {
			p.Eval("document.querySelector('#add').elements[" + quote(name) + "].value = " + quote(value))
		}
		p.Eval("document.querySelector('#add button.go').click()")
		p.Until("document.querySelector('#say').textContent.startsWith(" + quote(key) + ")")
	}
	p.Eval("window.tile = name => document.querySelector(`.tile[data-name=\"${name}\"] b`)?.textContent, 0")
	const evil = `<img src=x onerror="window.owned=1">`
	add(evil, "45s", "")
	p.Until("document.querySelector('#waiting').innerText.includes(" + quote(evil) + ") && !window.owned && !document.querySelector('#waiting img')")
	add("later", "30s", "")
	p.Until("[...document.querySelectorAll('#ahead i')].some(i => /^1 in second ([12]\\d|\\d)$/.test(i.title))")
	add("soon", "1s", "")
	p.Until("document.querySelector('#recent').innerText.includes('soon') && /\\d m?s late/.test(document.querySelector('#recent').innerText)")
	add("lost", "0s", "fail")
	p.Until("document.querySelector('#dead').innerText.includes('lost') && tile('dead') === '1'")
	p.Eval("document.querySelector('#many').click()")
	p.Until("document.querySelector('#say').textContent === '200 added'")
	p.Until("Number(tile('scheduled')) + Number(tile('done here')) > 200") // some may have been done meanwhile
	p.Screenshot("light")
	p.Eval("[...document.querySelectorAll('#dead button')].find(b => b.textContent === 'Requeue').click()")
	p.Until("document.querySelector('#say').textContent.startsWith('lost')")
	// Again if it was done before the request came.
	p.Eval("window.cancel = () => [...document.querySelectorAll('#waiting tr')].at(-1).querySelector('button:last-of-type').click(), 0")
	p.Eval("window.says = () => document.querySelector('#say').textContent, 0")
	p.Until("/cancelled/.test(says()) || (window.before !== says() && (cancel(), window.before = says(), false))")
	phone := b.Open("delay-phone", url+"/", "#add", 390, 844, "dark")
	phone.Until("document.querySelector('#link').classList.contains('on') && !!document.querySelector('.tile')")
	phone.Until("document.documentElement.scrollWidth <= innerWidth + 1")
	phone.Screenshot("dark")
}

func quote(s string) string {
	out := []byte{'`'}
	for i := range len(s) {
		if s[i] == '`' || s[i] == '\\' || s[i] == '$' {
			out = append(out, '\\')
		}
		out = append(out, s[i])
	}
	return string(append(out, '`'))
}
