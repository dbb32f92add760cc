package loopmetrics_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// The loops serve what net/http does.
func TestListener(t *testing.T) {
	srv, web, _ := start(t, nil)
	talk(t, srv, "one", "two")
	defer http.DefaultClient.CloseIdleConnections() // or the server waits for them
	url := "http://" + srv.Addrs()[1].String()
	for _, path := range []string{"/", "/page.js", "/page.css"} {
		if get(t, url+path) != get(t, web.URL+path) {
			t.Errorf("%s is another", path)
		}
	}
	for range 3 { // one that is made, and then the same
		if body := get(t, url+"/metrics"); !strings.Contains(body, "\nloopwheel_accepted_total ") {
			t.Errorf("metrics: %s", body)
		}
	}
	if body := get(t, url+"/state"); !strings.Contains(body, `"answered":true`) {
		t.Errorf("state: %s", body)
	}
	for method, want := range map[string]int{"GET": http.StatusNotFound, "POST": http.StatusForbidden} {
		r, err := http.NewRequest(method, url+"/elsewhere", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", method, answer.Status)
		}
	}
}

// ask writes requests to the listener, and nothing more, and reads the answers until the end.
func ask(t *testing.T, srv *loop.Server, requests string, methods ...string) (answers []*http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", srv.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, requests); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for _, method := range methods {
		a, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("after %d answers: %v", len(answers), err)
		}
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		a.Body = io.NopCloser(strings.NewReader(string(body)))
		answers = append(answers, a)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Fatalf("behind %d answers: %q, %v", len(answers), rest, err)
	}
	return answers
}

// Answers come in the order of the requests, whether they are made or there already, also to who
// asks no more.
func TestListenerKeepsTheOrder(t *testing.T) {
	srv, _, _ := start(t, nil)
	const metrics = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
	requests := metrics + "GET /state HTTP/1.1\r\nHost: x\r\n\r\n" + metrics +
		"HEAD /page.js HTTP/1.1\r\nHost: x\r\n\r\n" + metrics + "GET /metrics HTTP/1.0\r\n\r\n"
	answers := ask(t, srv, requests, "GET", "GET", "GET", "HEAD", "GET", "GET")
	for i, want := range []string{"text/plain", "application/json", "text/plain", "text/javascript", "text/plain", "text/plain"} {
		if got := answers[i].Header.Get("Content-Type"); answers[i].StatusCode != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("answer %d: %s, %s; want %s", i, answers[i].Status, got, want)
		}
	}
	if a := answers[3]; a.ContentLength <= 0 {
		t.Errorf("HEAD: a length of %d", a.ContentLength)
	}
	if a := answers[5]; !a.Close {
		t.Error("HTTP/1.0: the connection is kept")
	}
}

// What is no request is told why, and the connection closes.
func TestListenerRefuses(t *testing.T) {
	srv, _, _ := start(t, nil)
	const after = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" // which is not answered
	for request, want := range map[string]int{
		"hello\r\n\r\n":                 http.StatusBadRequest,
		"\r\n\r\n":                      http.StatusBadRequest,
		"GET /metrics HTTP/1.1\r\n\r\n": http.StatusBadRequest,
		"GET /metrics HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n":                         http.StatusBadRequest,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                               http.StatusHTTPVersionNotSupported,
		"POST /close HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc":                http.StatusRequestEntityTooLarge,
		"POST /close HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": http.StatusRequestEntityTooLarge,
	} {
		if a := ask(t, srv, request+after, "GET")[0]; a.StatusCode != want || !a.Close {
			t.Errorf("%q: %s, want %d", request, a.Status, want)
		}
	}
}

// A head that does not end closes the connection, as any frame does that is too long.
func TestListenerBoundsHeads(t *testing.T) {
	closed := make(chan error, 1)
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0"}
	l := loopmetrics.NewHandler(srv).Listener("tcp://127.0.0.1:0")
	accept := l.Accept
	l.Accept = func(c *loop.Conn) loop.Handler {
		h := accept(c)
		c.AfterClose(func(err error) { closed <- err })
		return h
	}
	srv.Accept = func(*loop.Conn) loop.Handler { return nil }
	srv.Listeners = []loop.Listener{l}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Wait() })
	c, err := net.Dial("tcp", srv.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 64<<10)) // which may be cut off
	select {
	case err := <-closed:
		if !errors.Is(err, codec.ErrTooLong) {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(patience):
		t.Error("it is not closed")
	}
}
