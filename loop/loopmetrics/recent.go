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
	// fresh is how long an answer is good for, at least; but for dear times as long as it took to
	// make, up to maxFresh, which a rate must bear: each open file makes Go's process metrics dearer.
	fresh    = time.Second
	dear     = 500
	maxFresh = 2 * time.Second

	// maxAnswers is how many forms of an answer are kept: what clients accept differs little.
	maxAnswers = 8
)

// recent gives an answer again to who asks soon after: half a millisecond of work each, or several
// with thousands of open files, most of it for Go's and the process's metrics, ought not to be what
// a server is busy with because several collectors ask, or one asks far too often. Those who ask at
// once wait for one answer.
type recent struct {
	next    http.Handler
	mu      sync.Mutex
	answers map[string]*answer
}

// An answer is a response. It does not change once it is made.
type answer struct {
	at      time.Time
	goodFor time.Duration
	header  http.Header
	status  int
	body    bytes.Buffer
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

// goodFor is how long an answer is good for that took so long to make.
func goodFor(took time.Duration) time.Duration { return min(maxFresh, max(fresh, dear*took)) }

func (c *recent) answer(r *http.Request) *answer {
	form := r.URL.RawQuery + "\n" + r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[form]; a != nil && time.Since(a.at) < a.goodFor {
		return a
	}
	if len(c.answers) >= maxAnswers || c.answers == nil {
		c.answers = make(map[string]*answer)
	}
	a := &answer{at: time.Now(), header: make(http.Header), status: http.StatusOK}
	c.next.ServeHTTP(a, r)
	a.goodFor = goodFor(time.Since(a.at))
	c.answers[form] = a
	return a
}
