package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"
)

// A client that speaks TLS reaches a backend that does not, and its half-close as well.
func TestTLSTermination(t *testing.T) {
	addr, _ := start(t, "-to", newBackend(t, "plain").Addr().String(), "-tls")
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // the certificate is nobody's
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, append([]byte("plain\n"), data...)) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(data)+6, err)
	}
}

func TestBackendsAreShown(t *testing.T) {
	backend := newBackend(t, "one").Addr().String()
	var shown func() string
	addr, stop := startShown(t, &shown, "-to", backend, "-metrics", "127.0.0.1:0", "-check", "0")
	c := dial(t, addr)
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	url := ""
	for end := time.Now().Add(30 * time.Second); url == ""; time.Sleep(time.Millisecond) { // said after the server's address
		if url = regexp.MustCompile(`http://\S+/backends\b`).FindString(shown()); url == "" && time.Now().After(end) {
			t.Fatalf("it tells of no page: %s", shown())
		}
	}
	want := numbers{Backend: backend, Up: true, Conns: 1, Total: 1}
	if got := backendNumbers(t, url); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Close()
	want.Conns, want.Out = 0, uint64(len("one\n"))
	for end := time.Now().Add(30 * time.Second); backendNumbers(t, url) != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after the end %+v, want %+v", backendNumbers(t, url), want)
		}
	}
	stop()
}

// backendNumbers returns what is shown of the only backend.
func backendNumbers(t *testing.T, url string) numbers {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got []numbers
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return got[0]
}
