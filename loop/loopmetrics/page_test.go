package loopmetrics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// state is what the test reads of the page's data.
type state struct {
	Loops []struct {
		Conns    int
		Answered bool
		Seen     int
		Rings    []struct{ Ahead []int }
		Slow     []struct {
			Took    float64
			Handler string
		}
		Largest, Silent []struct {
			ID       uint64
			Remote   string
			Buffered int
		}
	}
}

func look(t testing.TB, web *httptest.Server) (s state) {
	t.Helper()
	if err := json.Unmarshal([]byte(get(t, web.URL+"/state")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPage(t *testing.T) {
	srv, web, _ := start(t, nil)
	for path, want := range map[string]string{"/": "<title>loopwheel</title>", "/page.js": "drawWheel", "/page.css": "--ring"} {
		if body := get(t, web.URL+path); !strings.Contains(body, want) {
			t.Errorf("%s has no %q", path, want)
		}
	}
	sleeper := talk(t, srv)
	c := talk(t, srv, "hello")
	_, _ = io.WriteString(c, "half a line")
	conns, slow, buffered, ahead := 0, 0, 0, 0
	defer func() { t.Logf("%d connections, %d slow turns, %d bytes, %d ahead", conns, slow, buffered, ahead) }()
	testkit.Eventually(t, "all is seen", func() bool {
		if slow == 0 { // again if the machine stood still: then it was not the callback that took long
			say(t, sleeper, "sleep")
		}
		conns, slow, buffered, ahead = 0, 0, 0, 0
		for _, l := range look(t, web).Loops {
			conns += len(l.Silent)
			for _, s := range l.Slow {
				if s.Took >= 20 && s.Handler == "loopmetrics_test.session" {
					slow++
				}
			}
			for _, c := range l.Largest {
				buffered += c.Buffered
			}
			for _, r := range l.Rings {
				ahead += len(r.Ahead)
			}
		}
		return conns == 2 && slow >= 1 && buffered == len("half a line") && ahead > 0
	})
}

// More connections than a snapshot looks at are looked at in turns.
func TestManyConnections(t *testing.T) {
	const n, most = 30, 4
	srv, web, _ := start(t, func(h *loopmetrics.Handler) { h.LookAtMost(most) })
	for range n {
		talk(t, srv)
	}
	testkit.Eventually(t, "they are open", func() bool { return srv.Stats().Conns == n })
	seen := make(map[uint64]bool)
	const turns = (n + most - 1) / most // all of them may be on one loop
	for left := turns; left > 0; left-- {
		for _, l := range look(t, web).Loops {
			if !l.Answered { // the machine stood still
				left += turns
			}
			if l.Seen > most || len(l.Silent) != l.Seen {
				t.Errorf("%d rows for %d connections that were looked at", len(l.Silent), l.Seen)
			}
			for _, c := range l.Silent {
				seen[c.ID] = true
			}
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d seen", len(seen), n)
	}
}

// A loop that is blocked is shown as that, and the others as always.
func TestBlockedLoop(t *testing.T) {
	srv, web, _ := start(t, nil)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	if err := srv.Loops()[0].Post(func() { <-end }); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "one answers and one does not", func() bool {
		s := look(t, web)
		return s.Loops[0].Answered != s.Loops[1].Answered
	})
}

func TestClose(t *testing.T) {
	srv, web, closed := start(t, nil)
	c := talk(t, srv, "hello")
	var at, id string
	testkit.Eventually(t, "it is seen", func() bool {
		for i, l := range look(t, web).Loops {
			if len(l.Silent) == 1 && l.Silent[0].Remote == c.LocalAddr().String() {
				at, id = fmt.Sprint(i), fmt.Sprint(l.Silent[0].ID)
			}
		}
		return id != ""
	})
	post := func(query string, header ...string) int {
		r, err := http.NewRequest("POST", web.URL+"/close?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	query := "loop=" + at + "&conn=" + id
	for _, tc := range []struct {
		query  string
		header []string
		want   int
	}{
		{query, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{query, []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{"loop=7&conn=" + id, nil, http.StatusBadRequest},
		{"loop=-1&conn=" + id, nil, http.StatusBadRequest},
		{"loop=0&conn=x", nil, http.StatusBadRequest},
		{"loop=0&conn=99", nil, http.StatusNotFound},
		{query, nil, http.StatusNoContent},
	} {
		got := post(tc.query, tc.header...)
		for got == http.StatusServiceUnavailable { // the machine stood still; what was asked for comes late
			if got = post(tc.query, tc.header...); got == http.StatusNotFound && tc.want == http.StatusNoContent {
				got = tc.want
			}
		}
		if got != tc.want {
			t.Errorf("%s %v: %d, want %d", tc.query, tc.header, got, tc.want)
		}
	}
	if err := <-closed; !errors.Is(err, loopmetrics.ErrClosedByHand) {
		t.Errorf("closed with %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the peer is not told")
	}
}

// A foreign page whose name was given our address reads nothing, and closes nothing.
func TestForeignNames(t *testing.T) {
	_, web, _ := start(t, func(h *loopmetrics.Handler) { h.Hosts = []string{"ops.example"} })
	for _, tt := range []struct {
		method, path, host string
		want               int
	}{
		{"GET", "/state", "evil.example", http.StatusMisdirectedRequest},
		{"POST", "/close?loop=0&conn=1", "evil.example", http.StatusMisdirectedRequest},
		{"GET", "/", "evil.example:80", http.StatusMisdirectedRequest},
		{"GET", "/state", "ops.example", http.StatusOK},
		{"GET", "/state", "localhost:1", http.StatusOK},
		{"GET", "/metrics", "gateway-7:9090", http.StatusOK},
	} {
		r, err := http.NewRequest(tt.method, web.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		if tt.method == "POST" {
			r.Header.Set("Origin", "http://"+tt.host)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != tt.want {
			t.Errorf("%s %s under the name %s: %d, want %d", tt.method, tt.path, tt.host, answer.StatusCode, tt.want)
		}
	}
}

func TestReadOnly(t *testing.T) {
	_, web, _ := start(t, func(h *loopmetrics.Handler) { h.ReadOnly = true })
	r, err := http.Post(web.URL+"/close?loop=0&conn=1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden || !strings.Contains(get(t, web.URL+"/state"), `"readOnly":true`) {
		t.Errorf("%s", r.Status)
	}
}
