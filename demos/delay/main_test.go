package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// programEnv makes the test binary be the program.
const programEnv = "LOOPWHEEL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start starts the program and returns where its page is, and a function that ends it as kill does.
func start(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-addr", "tcp://127.0.0.1:0", "-log", "off", "-private"}, args...)...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if something below fails
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), "delay: listening on "); ok {
			url = strings.TrimSuffix(at, "/")
			break
		}
	}
	if url == "" {
		t.Fatal("the program has not said where it listens")
	}
	return url, func() {
		t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
		if !strings.Contains(lines.Text()+string(rest), "bye") && !strings.Contains(string(rest), "bye") {
			t.Errorf("it said no goodbye: %q", rest)
		}
	}
}

// ask sends a request and returns the status and the answer.
func ask(t *testing.T, method, url string, body any) (int, map[string]any) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer map[string]any
	text, _ := io.ReadAll(resp.Body)
	_ = json.Unmarshal(text, &answer)
	return resp.StatusCode, answer
}

type object map[string]any

// Add, look, move, cancel, call back, give up, requeue: over HTTP, as a user would.
func TestProgram(t *testing.T) {
	called := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		called <- fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header.Get("Content-Type"), " ", string(body))
	}))
	defer hook.Close()
	url, stop := start(t, "-attempts", "1")
	defer stop()
	for _, tt := range []struct {
		method, path string
		body         any
		code         int
		status       any
	}{
		{"POST", "/tasks", object{"key": "a/b ?", "delay": "1h", "body": object{"n": 1}}, 201, "scheduled"},
		{"POST", "/tasks", object{"key": "a/b ?", "on_conflict": "fail"}, 409, nil},
		{"GET", "/tasks/a%2Fb%20%3F", nil, 200, "scheduled"},
		{"PATCH", "/tasks/a%2Fb%20%3F", object{"delay": 7200}, 200, "scheduled"},
		{"DELETE", "/tasks/a%2Fb%20%3F", nil, 200, "cancelled"},
		{"DELETE", "/tasks/a%2Fb%20%3F", nil, 404, nil},
		{"GET", "/tasks/a%2Fb%20%3F", nil, 404, nil},
		{"POST", "/tasks", object{"key": "hook", "url": hook.URL + "/done", "method": "PUT", "body": object{"n": 2}}, 201, nil},
		{"POST", "/tasks", object{"key": "lost", "body": "fail"}, 201, nil},
		{"POST", "/tasks", object{"key": "bad", "delay": "soon"}, 400, nil},
		{"POST", "/tasks", object{"key": "bad", "cron": "x"}, 400, nil},
		{"POST", "/tasks", object{"key": "bad", "dely": "1s"}, 400, nil},
		{"POST", "/tasks", object{"key": "big", "body": strings.Repeat("x", 300<<10)}, 413, nil},
		{"GET", "/tasks?status=odd", nil, 400, nil},
	} {
		code, answer := ask(t, tt.method, url+tt.path, tt.body)
		if code != tt.code || tt.status != nil && answer["status"] != tt.status || code >= 400 && answer["error"] == "" {
			t.Errorf("%s %s: %d %v", tt.method, tt.path, code, answer)
		}
	}
	select {
	case got := <-called:
		if got != `PUT /done application/json {"n":2}` {
			t.Error(got)
		}
	case <-time.After(30 * time.Second):
		t.Error("nobody called")
	}
	requeue(t, url)
}

// requeue: what was given up is among the dead, and can be tried again.
func requeue(t *testing.T, url string) {
	for range 2 {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, answer := ask(t, "GET", url+"/tasks/lost", nil); answer["status"] == "dead" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it is not dead")
			}
		}
		if code, answer := ask(t, "POST", url+"/tasks/lost/requeue", nil); code != 200 {
			t.Error(code, answer)
		}
	}
}

// A page of somebody else cannot add tasks by way of a browser.
func TestCrossOrigin(t *testing.T) {
	url, stop := start(t)
	defer stop()
	req, _ := http.NewRequest("POST", url+"/tasks", strings.NewReader(`{"key":"evil"}`))
	req.Header.Set("Origin", "https://evil.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Error(resp.Status)
	}
}

// No script but the page's own runs in it.
func TestPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	newAPI(nil, nil, zerolog.Nop()).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	if got := w.Header()["Content-Security-Policy"]; w.Code != 200 || !strings.Contains(strings.Join(got, ","), "script-src 'sha256-") {
		t.Errorf("%d, %q", w.Code, got)
	}
}

// What no request can mean is refused, and changes nothing.
func TestBadRequests(t *testing.T) {
	url, stop := start(t)
	defer stop()
	if code, answer := ask(t, "POST", url+"/tasks", map[string]any{"key": "late", "delay": "1h"}); code != 201 {
		t.Fatal(code, answer)
	}
	for _, tt := range []struct{ method, path, body string }{
		{"PATCH", "/tasks/late", `{}`},
		{"PATCH", "/tasks/late", `{"delay":"1m","at":"2030-01-01T00:00:00Z"}`},
		{"POST", "/tasks", `{"key":"a"} {"key":"b"}`},
		{"POST", "/tasks", `{"key":"a"}x`},
		{"POST", "/tasks", `{"key":"a","url":"http://127.0.0.1/","method":"GE T"}`},
		{"POST", "/tasks", `{"key":"a","url":"http://127.0.0.1/","header":{"X":"a\r\nY: b"}}`},
		{"POST", "/tasks", `{"key":"a","url":"http://127.0.0.1/","header":{"X Y":"a"}}`},
	} {
		req, err := http.NewRequest(tt.method, url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s %s: %s", tt.method, tt.path, tt.body, resp.Status)
		}
	}
	if code, answer := ask(t, "GET", url+"/tasks/a", nil); code != 404 {
		t.Error("a refused request has added a task:", code, answer)
	}
	req, err := http.NewRequest("GET", url+"/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("under a foreign name: %s", resp.Status)
	}
}

// Errors say what to do, in one line.
func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "-redis"},
		{[]string{"-addr", "udp://x"}, 2, "want tcp://host:port or unix://path"},
		{[]string{"-redis", "127.0.0.1:1"}, 1, "delay: redis at 127.0.0.1:1 does not answer"},
		{[]string{"-redis", "http://x"}, 2, "-redis: "},
		{[]string{"-redis", "nowhere"}, 2, "want host:port"},
		{[]string{"-name", "a b"}, 1, "Name"},
		{[]string{"more"}, 2, "unexpected argument"},
	} {
		var out bytes.Buffer
		if code := run(context.Background(), tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q: %d, %s", tt.args, code, &out)
		}
	}
}
