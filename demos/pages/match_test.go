package pages

import (
	"fmt"
	"testing"

	"github.com/loopwheel/loopwheel/demos/internal/browser"
)

// Two players of a match see each other move. One of them reloads the page, and is back.
func TestMatch(t *testing.T) {
	b := browser.Start(t)
	url := start(t, build(t, "match")).says(`open (\S+)`)
	ann, bob := b.Open("match-ann", url, "#name", 1280, 800, "light"), b.Open("match-bob", url, "#name", 390, 844, "dark")
	play := func(p *browser.Page, name string) {
		p.Eval(fmt.Sprintf("document.querySelector('#name').value = %q; document.querySelector('#join button').click()", name))
	}
	const x = "[...document.querySelectorAll('.player')].filter(p => p.textContent === 'ann').map(p => parseFloat(p.style.left))[0]"
	play(ann, "ann")
	ann.Says("#state", "1 here")
	play(bob, "bob")
	for _, p := range []*browser.Page{ann, bob} {
		p.Says("#state", "2 here")
		p.Until(x + " === 10")
		p.Accessible("in a match")
	}
	ann.Eval("dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' })); 0")
	bob.Until(x + " > 20")
	ann.Eval("dispatchEvent(new KeyboardEvent('keyup', { key: 'ArrowRight' })); 0")
	bob.Screenshot("play")
	ann.Navigate(url)
	ann.Until(x + " > 20 && document.querySelector('#join').hidden")
	for _, p := range []*browser.Page{ann, bob} {
		p.Says("#state", "2 here")
		p.Until("!document.querySelector('.away')")
	}
}
