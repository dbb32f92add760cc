// Package browser drives a headless Chromium for the tests of examples that have a page.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"github.com/gobwas/ws"
)

// patience is how long something in the browser may take.
const patience = 2 * time.Minute

// A Browser is a headless Chromium, driven by its own protocol: what these tests need of it is a
// few dozen lines, and nothing has to be installed but the browser itself.
type Browser struct {
	t     *testing.T
	conn  net.Conn
	in    io.Reader // after what the handshake has read
	mu    sync.Mutex
	last  int
	calls map[int]chan reply
}

type reply struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start runs Chromium until the test ends.
func Start(t *testing.T) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Fatal("no Chromium: install it (apt-get install chromium)")
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--ignore-certificate-errors",                   // tests make theirs on the spot
		"--host-resolver-rules=MAP *.example 127.0.0.1", // as a name that is rebound
		"--hide-scrollbars", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b := &Browser{t: t, calls: make(map[int]chan reply)}
	b.dial(devTools(t, stderr))
	go b.read()
	t.Cleanup(func() {
		b.call("", "Browser.close", nil)
		_ = cmd.Wait() // so that it has left its directory
	})
	return b
}

// devTools returns the address that Chromium prints when it is ready.
func devTools(t *testing.T, stderr io.Reader) string {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "DevTools listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return url
		}
	}
	t.Fatal("Chromium has ended without being ready")
	return ""
}

func (b *Browser) dial(url string) {
	conn, buffered, _, err := ws.Dial(context.Background(), url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.conn, b.in = conn, conn
	if buffered != nil {
		b.in = io.MultiReader(buffered, conn)
	}
}

// read hands answers to those who wait for them, and drops events.
func (b *Browser) read() {
	for {
		data, err := wsutil.ReadServerText(readWriter{b.in, b.conn})
		if err != nil {
			return
		}
		var r reply
		if json.Unmarshal(data, &r) != nil || r.ID == 0 {
			continue
		}
		b.mu.Lock()
		ch := b.calls[r.ID]
		delete(b.calls, r.ID)
		b.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
}

type readWriter struct {
	io.Reader
	io.Writer
}

type params map[string]any

// call calls a method of the protocol, in a page's session or in that of the browser.
func (b *Browser) call(session, method string, p params) json.RawMessage {
	b.t.Helper()
	ch := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	message := params{"id": b.last, "method": method, "params": p}
	if p == nil {
		message["params"] = params{}
	}
	if session != "" {
		message["sessionId"] = session
	}
	b.calls[b.last] = ch
	data, err := json.Marshal(message)
	if err == nil {
		err = wsutil.WriteClientText(b.conn, data)
	}
	b.mu.Unlock()
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case r := <-ch:
		if r.Error != nil {
			b.t.Fatalf("%s: %s", method, r.Error.Message)
		}
		return r.Result
	case <-time.After(patience):
		b.t.Fatalf("%s: no answer from the browser", method)
		return nil
	}
}

// A Page is one tab.
type Page struct {
	*Browser
	session string
	name    string
}

// Open opens a page of its own profile, so that pages do not share what they store, and waits until
// there is what the selector names.
func (b *Browser) Open(name, url, selector string, width, height int, scheme string) *Page {
	b.t.Helper()
	var made struct{ BrowserContextID, TargetID, SessionID string }
	get := func(raw json.RawMessage) {
		if err := json.Unmarshal(raw, &made); err != nil {
			b.t.Fatal(err)
		}
	}
	get(b.call("", "Target.createBrowserContext", nil))
	get(b.call("", "Target.createTarget", params{"url": "about:blank", "browserContextId": made.BrowserContextID}))
	get(b.call("", "Target.attachToTarget", params{"targetId": made.TargetID, "flatten": true}))
	p := &Page{b, made.SessionID, name}
	p.call("Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 600})
	p.call("Emulation.setEmulatedMedia", params{"features": []params{{"name": "prefers-color-scheme", "value": scheme}}})
	p.call("Page.navigate", params{"url": url})
	p.Until(fmt.Sprintf("document.readyState === 'complete' && !!document.querySelector(%q)", selector))
	return p
}

func (p *Page) call(method string, ps params) json.RawMessage {
	p.t.Helper()
	return p.Browser.call(p.session, method, ps)
}

// Eval returns the value of an expression, or of the promise that it is.
func (p *Page) Eval(expression string) (value any) {
	p.t.Helper()
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	raw := p.call("Runtime.evaluate", params{"expression": expression, "awaitPromise": true, "returnByValue": true})
	if err := json.Unmarshal(raw, &result); err != nil {
		p.t.Fatal(err)
	}
	if d := result.ExceptionDetails; d != nil {
		p.t.Fatalf("%s: %s: %s", p.name, expression, d.Exception.Description)
	}
	return result.Result.Value
}

// Until waits, within the page, until the condition is true.
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

// Insert types text, without a key, into whatever has the focus.
func (p *Page) Insert(text string) {
	p.t.Helper()
	p.call("Input.insertText", params{"text": text})
}

// Navigate leaves for url.
func (p *Page) Navigate(url string) {
	p.t.Helper()
	p.call("Page.navigate", params{"url": url})
}

// TypeLine types with the keyboard, into whatever has the focus, and presses Enter.
func (p *Page) TypeLine(text string) {
	p.t.Helper()
	p.Insert(text)
	p.Key("Enter", "\r", 13)
}

// Key presses a key and lets it go.
func (p *Page) Key(name, text string, code int) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.call("Input.dispatchKeyEvent", params{"type": kind, "key": name, "code": name, "text": text, "windowsVirtualKeyCode": code})
	}
}

// Screenshot keeps a picture in LOOPWHEEL_OUT, or in the test's own directory.
func (p *Page) Screenshot(what string) {
	p.t.Helper()
	var shot struct{ Data string }
	raw := p.call("Page.captureScreenshot", params{"format": "png"})
	if err := json.Unmarshal(raw, &shot); err != nil {
		p.t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	dir := os.Getenv("LOOPWHEEL_OUT")
	if dir == "" {
		dir = p.t.TempDir()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, p.name+"-"+what+".png"), data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
