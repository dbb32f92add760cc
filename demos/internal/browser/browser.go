// Package browser opens pages in a headless Chromium for tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long something in the browser may take.
const patience = 2 * time.Minute

// A Browser is a headless Chromium.
type Browser struct {
	t   *testing.T
	ctx context.Context
}

// Start runs Chromium until the test ends. It skips the test if LOOPWHEEL_BROWSER is not set.
func Start(t *testing.T) *Browser {
	t.Helper()
	if os.Getenv("LOOPWHEEL_BROWSER") == "" {
		t.Skip("it needs Chromium; to run it set LOOPWHEEL_BROWSER=1, as CI does")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors, // tests make theirs on the spot
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"), // as a name that is rebound
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // starts it
		t.Fatal(err)
	}
	return &Browser{t, ctx}
}

// A Page is a window.
type Page struct {
	t    *testing.T
	ctx  context.Context
	name string
}

// Open opens a window with a profile of its own, so that pages do not share what they store, and
// waits until the page has what the selector names. scheme is light or dark; a window that is less
// than 600 wide is a phone.
func (b *Browser) Open(name, url, selector string, width, height int64, scheme string) *Page {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	b.t.Cleanup(cancel)
	p := &Page{b.t, ctx, name}
	if err := chromedp.Do(ctx); err != nil { // its target lives as long as ctx
		b.t.Fatal(err)
	}
	p.emulate(width, height, scheme)
	p.Navigate(url)
	p.Until(fmt.Sprintf("document.readyState === 'complete' && !!document.querySelector(%q)", selector))
	return p
}

// Resize gives the window another size and scheme, as Open does.
func (p *Page) Resize(width, height int64, scheme string) {
	p.t.Helper()
	p.emulate(width, height, scheme)
	p.Until(fmt.Sprintf("innerWidth === %d", width))
}

func (p *Page) emulate(width, height int64, scheme string) {
	p.t.Helper()
	viewport := []chromedp.EmulateViewportOption{chromedp.EmulateScale(2)}
	if width < 600 {
		viewport = append(viewport, chromedp.EmulateMobile)
	}
	p.do(chromedp.EmulateViewport(width, height, viewport...))
	p.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// command is an action that calls a command of the browser.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

func (p *Page) do(action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// Eval returns the value of an expression, or of the promise that it is.
func (p *Page) Eval(expression string) any {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[any](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %s: %v", p.name, expression, err)
	}
	return value
}

// Until waits until a condition is true. chromedp.Poll cannot do that where the page's policy
// forbids eval.
func (p *Page) Until(condition string) {
	p.t.Helper()
	const wait = `new Promise(done => {
		const end = Date.now() + %d;
		const look = () => { let ok = false; try { ok = %s } catch (e) {} ok ? done(true) : Date.now() > end ? done(false) : setTimeout(look, 20) };
		look();
	})`
	if p.Eval(fmt.Sprintf(wait, (patience*2/3).Milliseconds(), condition)) != true {
		p.Screenshot("failed")
		p.t.Fatalf("%s: never true: %s; the page says: %v", p.name, condition, p.Eval("document.body.innerText"))
	}
}

// Says waits until the element that the selector names shows a text.
func (p *Page) Says(selector, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("document.querySelector(%q).innerText.includes(%q)", selector, text))
}

// Navigate goes to url, and waits until that is loaded.
func (p *Page) Navigate(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// Insert types text, without a key, into whatever has the focus.
func (p *Page) Insert(text string) {
	p.t.Helper()
	p.do(command(input.InsertText, input.InsertTextParams{Text: text}))
}

// Key presses a key and lets it go; package kb has their names. The text comes with keydown, so a
// page that prevents that gets none. chromedp.KeyEvent sends the text in any case.
func (p *Page) Key(name string) {
	p.t.Helper()
	key := kb.Keys[[]rune(name)[0]]
	event := input.DispatchKeyEventParams{Key: key.Key, Code: key.Code, WindowsVirtualKeyCode: key.Windows}
	if key.Print {
		event.Text = key.Text
	}
	for _, kind := range []input.DispatchKeyEventType{kb.KeyDown, kb.KeyUp} {
		event.Type = kind
		p.do(command(input.DispatchKeyEvent, event))
	}
}

// Point moves the mouse to the middle of an element, and returns where that is.
func (p *Page) Point(element string) (x, y float64) {
	p.t.Helper()
	at, _ := p.Eval("(r => [r.x + r.width / 2, r.y + r.height / 2])(" + element + ".getBoundingClientRect())").([]any)
	x, y = at[0].(float64), at[1].(float64)
	p.do(command(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y}))
	return x, y
}

// Click clicks where the mouse is.
func (p *Page) Click(x, y float64) {
	p.t.Helper()
	for _, kind := range []input.DispatchMouseEventType{input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased} {
		p.do(command(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: 1}))
	}
}

// TypeLine types text into whatever has the focus, and presses Enter.
func (p *Page) TypeLine(text string) {
	p.t.Helper()
	p.Insert(text)
	p.Key(kb.Enter)
}

// Accessible checks what the page shows now by axe-core, whose file, axe.min.js of the npm package,
// LOOPWHEEL_AXE names. Without that it checks nothing, and logs that.
func (p *Page) Accessible(what string) {
	p.t.Helper()
	file := os.Getenv("LOOPWHEEL_AXE")
	if file == "" {
		p.t.Logf("%s, %s: not checked by axe-core, as LOOPWHEEL_AXE does not name its file", p.name, what)
		return
	}
	if p.Eval("!window.axe") == true {
		axe, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		p.Eval(string(axe) + "; 0")
	}
	faults := p.Eval(`axe.run({ resultTypes: ['violations'] }).then(r => r.violations.flatMap(v => v.nodes.map(n =>
		v.id + ': ' + n.target + ': ' + n.failureSummary)).join('\n'))`)
	if faults != "" {
		p.t.Errorf("%s, %s: axe-core reports %v", p.name, what, faults)
	}
}

// Screenshot keeps a picture in LOOPWHEEL_OUT, or in the test's own directory.
func (p *Page) Screenshot(what string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	dir := os.Getenv("LOOPWHEEL_OUT")
	if dir == "" {
		dir = p.t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, p.name+"-"+what+".png"), picture, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
