package loopmetrics

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// fresh is how long an answer is good for.
	fresh = time.Second

	// maxAnswers is how many forms of an answer are kept: what clients accept differs little.
	maxAnswers = 8
)

// recent gives an answer again to who asks within a second: half a millisecond of work each, most of
// it for Go's and the process's metrics, ought not to be what a server is busy with because several
// collectors ask, or one asks far too often. Those who ask at once wait for one answer.
type recent struct {
	next    http.Handler
	mu      sync.Mutex
	answers map[string]*answer
}

// An answer is a response. It does not change once it is made.
type answer struct {
	at     time.Time
	header http.Header
	status int
	body   bytes.Buffer
}

func newAnswer() *answer {
	return &answer{at: time.Now(), header: make(http.Header), status: http.StatusOK}
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// ServeHTTP implements http.Handler.
func (c *recent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := c.answer(r)
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len())) // or it goes in pieces of 2 to 4 KiB
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}

// form returns what makes answers differ.
func form(r *http.Request) string {
	return r.URL.RawQuery + "\n" + r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
}

// lately returns the answer of this second, or nil. c.mu is held.
func (c *recent) lately(form string) *answer {
	if a := c.answers[form]; a != nil && time.Since(a.at) < fresh {
		return a
	}
	return nil
}

// ready is lately for a loop: it does not wait for who makes an answer.
func (c *recent) ready(r *http.Request) *answer {
	if !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	return c.lately(form(r))
}

func (c *recent) answer(r *http.Request) *answer {
	form := form(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.lately(form); a != nil {
		return a
	}
	if len(c.answers) >= maxAnswers || c.answers == nil {
		c.answers = make(map[string]*answer)
	}
	a := newAnswer()
	c.next.ServeHTTP(a, r)
	c.answers[form] = a
	return a
}
