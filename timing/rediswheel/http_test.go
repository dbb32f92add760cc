package rediswheel

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestHTTPCallback(t *testing.T) {
	type seen struct {
		method, path, body string
		header             http.Header
	}
	var lock sync.Mutex
	var requests []seen
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lock.Lock()
		defer lock.Unlock()
		requests = append(requests, seen{r.Method, r.URL.Path, string(body), r.Header})
		_, _ = io.WriteString(w, strings.Repeat("long", 1<<20))
	}))
	defer server.Close()
	key := []byte("a secret of some length")
	h := &HTTPCallback{AllowPrivate: true, Secret: "whsec_" + base64.StdEncoding.EncodeToString(key)}
	ctx := context.Background()
	q := open(t, embedded(t), Config{})
	stop := start(t, q, h)
	must(t, q.Add(ctx, Task{Key: "k", Method: "PUT", URL: server.URL + "/hook?x=1", Body: []byte(`{"a":1}`), Header: http.Header{"content-type": {"application/json"}}}))
	testkit.Eventually(t, "the task is done", func() bool { return q.Local().Done == 1 })
	must(t, stop())
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	got := requests[0]
	testkit.Want(t, "got.method", got.method, "PUT")
	testkit.Want(t, "got.path", got.path, "/hook")
	testkit.Want(t, "got.body", got.body, `{"a":1}`)
	testkit.Want(t, `got.header.Get("Content-Type")`, got.header.Get("Content-Type"), "application/json")
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", got.header.Get("Webhook-Id"), got.header.Get("Webhook-Timestamp"), got.body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); got.header.Get("Webhook-Signature") != want {
		t.Errorf("signed %q, want %q", got.header.Get("Webhook-Signature"), want)
	}
}

// The example of the specification of Standard Webhooks.
func TestSignature(t *testing.T) {
	req := httptest.NewRequest("POST", "/", nil)
	req.Header.Set("Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	req.Header.Set("Webhook-Timestamp", "1614265330")
	must(t, sign(req, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", []byte(`{"test": 2432232314}`)))
	testkit.Want(t, "the signature", req.Header.Get("Webhook-Signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
}

// A Secret that is none is found before any task is lost by it.
func TestNewHTTPCallback(t *testing.T) {
	for secret, want := range map[string]error{
		"": nil, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": nil, "any other text": nil,
		"whsec_": ErrConfig, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS": ErrConfig, "whsec_a b": ErrConfig,
	} {
		t.Run(secret, func(t *testing.T) {
			_, err := NewHTTPCallback(&HTTPCallback{Secret: secret})
			testkit.WantErr(t, "NewHTTPCallback", err, want)
		})
	}
}

func TestHTTPAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscan(r.URL.Path[1:], &code)
		w.Header().Set("Location", "/200")
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	h := &HTTPCallback{AllowPrivate: true}
	soon := time.Now().Add(30 * time.Minute).UTC().Format(http.TimeFormat)
	for _, tt := range []struct{ path, want string }{
		{"/200", "ok"}, {"/204", "ok"}, {"/301", "retry"}, {"/302", "retry"}, {"/400", "retry"}, {"/401", "retry"}, {"/404", "retry"},
		{"/410", "permanent"}, {"/408", "retry"}, {"/425", "retry"}, {"/429", "retry"}, {"/500", "retry"}, {"/503", "retry"},
		{"/503?after=7", "after 7s"}, {"/429?after=99999999999", "after 1h0m0s"}, {"/503?after=soon", "retry"}, {"/503?after=-1", "retry"},
		{"/503?after=0", "retry"}, {"/503?after=" + strings.ReplaceAll(time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), " ", "%20"), "retry"},
		{"/503?after=" + strings.ReplaceAll(soon, " ", "%20"), "after half an hour"},
	} {
		err := h.Handle(context.Background(), Task{Key: "k", URL: server.URL + tt.path})
		if got := kind(err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.path, got, tt.want)
		}
	}
	t.Run("a wrong secret", func(t *testing.T) { // of one endpoint, which somebody can put right
		h := &HTTPCallback{AllowPrivate: true, SecretFor: func(Task) string { return "whsec_no base64" }}
		err := h.Handle(t.Context(), Task{Key: "k", URL: server.URL + "/200"})
		testkit.Want(t, "the attempt", kind(err), "retry")
		testkit.WantErr(t, "the attempt", err, ErrConfig)
	})
	for _, header := range []http.Header{{"X-Bad": {"a\nb"}}, {"X Bad": {"a"}}} { // which would never be sent
		if got := kind(h.Handle(context.Background(), Task{Key: "k", URL: server.URL + "/200", Header: header})); got != "permanent" {
			t.Errorf("%q: %s, want permanent", header, got)
		}
	}
	server.Close()
	if got := kind(h.Handle(context.Background(), Task{Key: "k", URL: server.URL})); got != "retry" {
		t.Errorf("nobody there: %s", got)
	}
	if got := kind(h.Handle(context.Background(), Task{Key: "k"})); got != "permanent" {
		t.Errorf("no URL: %s", got)
	}
}

func kind(err error) string {
	var v *verdict
	switch {
	case err == nil:
		return "ok"
	case !errors.As(err, &v):
		return "retry"
	case v.end.what == "dead":
		return "permanent"
	case v.end.what == "release":
		return "postpone"
	}
	after := time.Duration(-v.end.at) * time.Millisecond
	if after > 25*time.Minute && after <= 30*time.Minute { // what has passed is less
		return "after half an hour"
	}
	return "after " + after.String()
}

// An answer that does not end is read up to MaxResponse; one that does not come is waited for as
// long as Timeout says, and tried again.
func TestHTTPBounds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_, _ = w.Write(make([]byte, 1000))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	long := &HTTPCallback{AllowPrivate: true, MaxResponse: 1000, Timeout: time.Hour}
	if err := long.Handle(ctx, Task{Key: "k", URL: server.URL + "/long"}); err != nil {
		t.Error(err)
	}
	never := &HTTPCallback{AllowPrivate: true, Timeout: 50 * time.Millisecond}
	if err := never.Handle(ctx, Task{Key: "k", URL: server.URL + "/never"}); kind(err) != "retry" {
		t.Error(err)
	}
	wide := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
	}))
	defer wide.Close()
	if err := (&HTTPCallback{AllowPrivate: true}).Handle(ctx, Task{Key: "k", URL: wide.URL}); kind(err) != "retry" {
		t.Errorf("a megabyte of headers: %v", err)
	}
	if ctx.Err() != nil {
		t.Error("it took a minute")
	}
}

// A receiver knows by Webhook-Id what it has seen: each attempt of an occurrence has the same, the
// next occurrence another.
func TestWebhookID(t *testing.T) {
	ids := make(chan string, 3)
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case ids <- r.Header.Get("Webhook-Id"):
		default: // those after the third
		}
		if first {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		first = false
	}))
	defer server.Close()
	q := open(t, embedded(t), Config{Backoff: func(int) time.Duration { return time.Millisecond }})
	stop := start(t, q, &HTTPCallback{AllowPrivate: true})
	must(t, q.Add(context.Background(), Task{Key: "k", Every: 10 * time.Millisecond, URL: server.URL}))
	failed, again, next := <-ids, <-ids, <-ids
	must(t, stop())
	if failed == "" || failed != again || next == again {
		t.Errorf("ids %q, %q, then %q", failed, again, next)
	}
	one := Task{Key: "k", Occurred: time.Now(), Body: []byte("1")}
	other := one
	other.Body = []byte("2")
	if webhookID(&one) == webhookID(&other) {
		t.Error("a task that replaced another has its id")
	}
}

// What only this machine or its network should reach is not reached, however it is spelt.
func TestPrivateAddresses(t *testing.T) {
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	h := &HTTPCallback{}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "127.1", "2130706433"} {
		err := h.Handle(context.Background(), Task{Key: "k", URL: "http://" + host + ":" + port})
		if err == nil {
			t.Errorf("%s was reached", host)
		}
		if strings.ContainsAny(host, ".:") && host != "127.1" && !errors.Is(err, ErrPrivateAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if reached {
		t.Error("it was reached")
	}
}

// Each network of the IANA registries is refused, at its first address and its last. The guard is
// asked, and nothing is dialed.
func TestSpecialNetworks(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29",
		"192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24",
		"192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
		"::1/128", "::/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32",
		"2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
		"2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10",
		"ff00::/8", "::127.0.0.1/128", "::ffff:10.0.0.0/104", "::ffff:127.0.0.0/104",
	} {
		p := netip.MustParsePrefix(text)
		first, last := p.Masked().Addr(), p.Addr().AsSlice()
		for bit := p.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{first, p.Addr(), end} {
			if err := refusePrivate("tcp", netip.AddrPortFrom(a, 80).String(), nil); !errors.Is(err, ErrPrivateAddress) {
				t.Errorf("%s of %s: %v", a, text, err)
			}
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255",
		"172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2a00::1", "2003::1", "::ffff:8.8.8.8"} {
		if a := netip.MustParseAddr(text); refusePrivate("tcp", netip.AddrPortFrom(a, 443).String(), nil) != nil {
			t.Errorf("%s counts as special", text)
		}
	}
	for _, text := range []string{"", "127.0.0.1", "host:80", "[fe80::1%lo]:80"} {
		if refusePrivate("tcp", text, nil) == nil {
			t.Errorf("%q was let through", text)
		}
	}
}

// PerHost knows a host by all spellings of its name, address and port.
func TestHostSpellings(t *testing.T) {
	for want, spellings := range map[string][]string{
		"example.com:80":           {"http://example.com", "http://EXAMPLE.com.:80/x", "http://user@example.com:0080", "http://example.com:"},
		"example.com:443":          {"https://example.com", "HTTPS://Example.Com:443"},
		"[2001:db8::1]:80":         {"http://[2001:DB8::1]/", "http://[2001:db8:0:0::0:1]"},
		"192.0.2.1:80":             {"http://192.0.2.1", "http://[::ffff:192.0.2.1]:80"},
		"xn--bcher-kva.example:80": {"http://bücher.example", "http://BÜCHER.example", "http://xn--bcher-kva.example"},
	} {
		for _, spelling := range spellings {
			u, err := url.Parse(spelling)
			must(t, err)
			testkit.Want(t, spelling, hostPort(u), want)
		}
	}
}

// One slow host does not keep others waiting.
func TestSlowHost(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	fast := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer slow.Close()
	defer fast.Close()
	ctx := context.Background()
	q := open(t, embedded(t), Config{Concurrency: 8})
	stop := start(t, q, &HTTPCallback{AllowPrivate: true, PerHost: 2})
	for i := range 40 {
		must(t, q.Add(ctx, Task{Key: fmt.Sprint("slow", i), URL: slow.URL}))
	}
	for i := range 40 {
		must(t, q.Add(ctx, Task{Key: fmt.Sprint("fast", i), URL: fast.URL}))
	}
	testkit.Eventually(t, "those of the fast host are done", func() bool { return q.Local().Done >= 40 })
	close(release)
	must(t, stop())
}
