package loopmetrics_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// serve runs Handler.Serve and returns its address, and what ends it.
func serve(t testing.TB, srv *loop.Server) (addr string, end func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- loopmetrics.NewHandler(srv).Serve(ln) }()
	end = func() {
		_ = ln.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			done <- nil
		case <-time.After(patience):
			t.Error("Serve does not return")
		}
	}
	t.Cleanup(end)
	return ln.Addr().String(), end
}

// A visitor asks on one connection.
type visitor struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func visit(t *testing.T, addr string) *visitor {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &visitor{t, c, bufio.NewReader(c)}
}

func (v *visitor) say(text string) {
	v.t.Helper()
	if _, err := io.WriteString(v.conn, text); err != nil {
		v.t.Fatal(err)
	}
}

// hear reads an answer, which must have this status and this text in it.
func (v *visitor) hear(status int, text string) *http.Response {
	v.t.Helper()
	r, err := http.ReadResponse(v.in, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != status || !strings.Contains(string(body), text) {
		v.t.Fatalf("%s, %v, without %q: %.300s", r.Status, err, text, body)
	}
	return r
}

const scrapeHead = "GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n"

// What is a scrape, what is not, one after the other, and whatever pieces it comes in.
func TestServe(t *testing.T) {
	srv, _, _ := start(t, nil)
	talk(t, srv, "hello")
	addr, end := serve(t, srv)
	v := visit(t, addr)
	for range 3 {
		v.say(scrapeHead)
		r := v.hear(200, "loopwheel_accepted_total 1\n")
		if r.Header.Get("Date") == "" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain; version=0.0.4") || r.ContentLength <= 0 {
			t.Errorf("%v", r.Header)
		}
	}
	for i := range scrapeHead {
		v.say(scrapeHead[i : i+1])
	}
	v.hear(200, "loopwheel_accepted_total 1\n")
	v.say(scrapeHead + scrapeHead + strings.Replace(scrapeHead, "Host", "Accept-Encoding: gzip\r\nHost", 1))
	v.hear(200, "loopwheel_accepted_total 1\n")
	v.hear(200, "loopwheel_accepted_total 1\n")
	if r := v.hear(200, ""); r.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v", r.Header)
	}
	v.say(scrapeHead + "GET / HTTP/1.1\r\nHost: here\r\n\r\n" + scrapeHead) // from here on it is net/http's
	v.hear(200, "loopwheel_accepted_total 1\n")
	v.hear(200, "<html")
	v.hear(200, "loopwheel_accepted_total 1\n")
	end()
	if _, err := v.in.ReadByte(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// What net/http has a say in goes there.
func TestServeOthers(t *testing.T) {
	srv, _, _ := start(t, nil)
	addr, _ := serve(t, srv)
	for _, c := range []struct {
		head   string
		status int
		text   string
	}{
		{"GET /metrics HTTP/1.0\r\n\r\n", 200, "loopwheel_accepted_total"},
		{"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n", 200, "loopwheel_accepted_total"},
		{"GET /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\nabc", 200, "loopwheel_accepted_total"},
		{"GET /metrics HTTP/1.1\r\nHost: here\r\nExpect: nothing\r\n\r\n", 417, ""},
		{"GET /metrics HTTP/1.1\r\n\r\n", 400, "Host"},
		{"GET /metrics HTTP/1.1\r\nHost: here\r\nX: " + strings.Repeat("x", 8000) + "\r\n\r\n", 200, "loopwheel_accepted_total"},
		{"POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n", 405, ""},
		{"GET /state HTTP/1.1\r\nHost: here\r\n\r\n", 200, "{"},
		{"GET /nothing HTTP/1.1\r\nHost: here\r\n\r\n", 404, ""},
		{"rubbish\r\n\r\n", 400, ""},
		{"\r\n\r\n\r\n", 400, ""},
	} {
		v := visit(t, addr)
		v.say(c.head)
		v.hear(c.status, c.text)
	}
	visit(t, addr).say("GET /met") // and no more: it must not keep Serve from ending
}
