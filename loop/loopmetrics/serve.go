package loopmetrics

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// idleScraper is how long a connection is kept on which nobody asks.
	idleScraper = 5 * time.Minute

	// headTime is how long the head of a request may take to come, and an answer to go.
	headTime = 10 * time.Second

	// acceptAgain is when accepting is tried again that failed.
	acceptAgain = 100 * time.Millisecond

	// maxScrape is how long a scrape's head may be to be answered here.
	maxScrape = 4 << 10
)

// ListenAndServe serves h at an address such as "127.0.0.1:9090", as Serve does.
func (h *Handler) ListenAndServe(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return h.Serve(ln)
}

// Serve serves h on ln until that is closed, which is no error; any goroutine may close it. It does
// what http.Serve does, and answers scrapes for half of the CPU time: those of a process that sleeps
// in between cost net/http two goroutines that wake each other, and the threads to run them.
func (h *Handler) Serve(ln net.Listener) error {
	h.once.Do(h.init)
	f := &front{Listener: ln, scrapes: h.scrapes, others: make(chan net.Conn), done: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	rest := &http.Server{Handler: h, ReadHeaderTimeout: headTime, IdleTimeout: idleScraper}
	go func() { _ = rest.Serve(f) }()
	err := f.accept()
	f.stop()
	_ = rest.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// A front is before net/http: it answers plain scrapes, and leaves a connection with any other
// request to it. It is the net.Listener of those.
type front struct {
	net.Listener
	scrapes *recent
	others  chan net.Conn
	done    chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil: stopped
}

// accept accepts until the listener is closed.
func (f *front) accept() error {
	for {
		c, err := f.Listener.Accept()
		var system *net.OpError
		switch {
		case err == nil:
			go f.serve(c)
		case errors.As(err, &system) && !errors.Is(err, net.ErrClosed):
			time.Sleep(acceptAgain) // no descriptors, say: what is open goes on
		default:
			return err
		}
	}
}

// Accept implements net.Listener for net/http.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.others:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// stop closes all connections that net/http does not have.
func (f *front) stop() {
	close(f.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// keep notes c, or returns false because the front was stopped.
func (f *front) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns != nil {
		f.conns[c] = struct{}{}
	}
	return f.conns != nil
}

func (f *front) forget(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// serve answers scrapes until there is another request, or none.
func (f *front) serve(c net.Conn) {
	if !f.keep(c) {
		_ = c.Close()
		return
	}
	s := scraper{conn: c, in: bufio.NewReaderSize(c, maxScrape)}
	for s.scrape() {
		if !s.answer(f.scrapes) {
			f.forget(c)
			_ = c.Close()
			return
		}
	}
	f.forget(c)
	_ = c.SetDeadline(time.Time{})
	select {
	case f.others <- &begun{c, s.in}:
	case <-f.done:
		_ = c.Close()
	}
}

// A scraper is a connection that has asked for nothing but the metrics so far.
type scraper struct {
	conn    net.Conn
	in      *bufio.Reader
	last    []byte        // the head of its last request: they are all the same
	request *http.Request // what that said
	out     []byte
}

// scrape waits for a request, and reports whether it is one to answer here. Otherwise nothing of it
// has been taken.
func (s *scraper) scrape() bool {
	_ = s.conn.SetReadDeadline(time.Now().Add(idleScraper))
	head := s.head()
	if head == nil {
		return false
	}
	if !bytes.Equal(head, s.last) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil || !plain(r) {
			return false
		}
		s.last, s.request = bytes.Clone(head), r
	}
	_, _ = s.in.Discard(len(head))
	return true
}

// head returns a whole head of a request, which is not yet taken. nil: there is none, or it is too
// long.
func (s *scraper) head() []byte {
	for need := 1; ; {
		if _, err := s.in.Peek(need); err != nil {
			return nil
		}
		seen, _ := s.in.Peek(s.in.Buffered())
		if end := bytes.Index(seen, []byte("\r\n\r\n")); end >= 0 {
			return seen[:end+4]
		}
		if need == 1 {
			_ = s.conn.SetReadDeadline(time.Now().Add(headTime))
		}
		need = len(seen) + 1
	}
}

// plain reports whether a request is a scrape without anything that net/http should see to.
func plain(r *http.Request) bool {
	return r.Method == http.MethodGet && r.RequestURI == metricsPath && r.ProtoAtLeast(1, 1) && !r.Close &&
		r.Host != "" && r.ContentLength == 0 && len(r.TransferEncoding) == 0 &&
		r.Header.Get("Expect") == "" && r.Header.Get("Upgrade") == ""
}

// answer writes the answer in one piece, and reports whether that went well.
func (s *scraper) answer(from *recent) bool {
	a := from.answer(s.request)
	b := bytes.NewBuffer(s.out[:0])
	b.WriteString("HTTP/1.1 " + strconv.Itoa(a.status) + " " + http.StatusText(a.status) + "\r\n")
	b.WriteString("Date: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n")
	b.WriteString("Content-Length: " + strconv.Itoa(a.body.Len()) + "\r\n")
	_ = a.header.Write(b)
	b.WriteString("\r\n")
	b.Write(a.body.Bytes())
	s.out = b.Bytes()
	_ = s.conn.SetWriteDeadline(time.Now().Add(headTime))
	_, err := s.conn.Write(s.out)
	return err == nil
}

// begun is a connection of which something was read that is still to be had.
type begun struct {
	net.Conn
	in *bufio.Reader
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) { return b.in.Read(p) }
