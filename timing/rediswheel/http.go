package rediswheel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Defaults of an [HTTPCallback].
const (
	DefaultCallbackTimeout = 10 * time.Second
	DefaultMaxResponse     = 64 << 10
	DefaultPerHost         = 16
)

// HTTPCallback is a [Handler] that sends each task as an HTTP request: to Task.URL with
// Task.Method, which is POST if it is empty, Task.Header and Task.Body. The zero value is ready to
// use; it must not be copied or changed once in use.
//
// A status of 2xx is success. Errors of transport, 408, 425, 429 and 5xx are tried again, with
// Config.Backoff or when Retry-After says, if that is not now, and within an hour. All other
// answers are final: the task is dead. That includes redirects, which are not followed: a callback
// that moved is to be changed where it is made.
//
// Requests carry the headers of Standard Webhooks (standardwebhooks.com): Webhook-Id, the same in
// each attempt of one occurrence, by which a receiver knows what it has seen; Webhook-Timestamp;
// and, with a Secret, Webhook-Signature.
type HTTPCallback struct {
	// Timeout bounds one request, the answer included. 0 means DefaultCallbackTimeout.
	Timeout time.Duration

	// MaxResponse is how many bytes of an answer are read; a longer one counts all the same, and
	// its connection is closed. 0 means DefaultMaxResponse.
	MaxResponse int64

	// PerHost is how many requests to one host are on their way at once. Tasks above that are put
	// off by about a second, without counting an attempt, so that a slow host does not take all
	// places. 0 means DefaultPerHost.
	PerHost int

	// Secret signs requests, if it is not empty: "whsec_" and the key in base64, or the key itself.
	Secret string

	// AllowPrivate permits requests to private, loopback and link-local addresses, and others that
	// are not of the public Internet. Whoever may add tasks can otherwise reach what only this
	// machine should. Addresses are checked when a connection is made, after names were resolved.
	AllowPrivate bool

	// TLS and proxies of the environment: a Transport replaces ours, which uses no proxy. Then
	// AllowPrivate and the timeout of dialling are the Transport's matter. nil means ours.
	Transport http.RoundTripper

	once   sync.Once
	client *http.Client
	lock   sync.Mutex
	hosts  map[string]int // requests on their way
}

// ErrPrivateAddress is why HTTPCallback does not connect to an address of no public network. It is
// permanent.
var ErrPrivateAddress = errors.New("rediswheel: the address is not public, and HTTPCallback.AllowPrivate is not set")

// special are the networks of the IANA special-purpose address registries (RFC 6890), as they were
// in November 2025, reachable ones included, and multicast. Of IPv6, all that is not in 2000::/3 is
// special.
//
//go:embed special.txt
var special string

// refusePrivate is called by the dialer with the address that it is about to connect to.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(ap.Addr().Unmap().WithZone("")) {
		return fmt.Errorf("%w: %s", ErrPrivateAddress, address)
	}
	return nil
}

// isPublic reports whether an address is of the public Internet.
func isPublic(a netip.Addr) bool {
	if a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a) {
		return false
	}
	for line := range strings.Lines(special) {
		if netip.MustParsePrefix(strings.Fields(line)[0]).Contains(a) {
			return false
		}
	}
	return true
}

// maxRetryAfter bounds what a host may ask for.
const maxRetryAfter = time.Hour

func (h *HTTPCallback) init() {
	h.Timeout = cmp.Or(h.Timeout, DefaultCallbackTimeout)
	h.MaxResponse = cmp.Or(h.MaxResponse, DefaultMaxResponse)
	h.PerHost = cmp.Or(h.PerHost, DefaultPerHost)
	h.hosts = make(map[string]int)
	transport := h.Transport
	if transport == nil {
		dialer := &net.Dialer{Timeout: h.Timeout, KeepAlive: 30 * time.Second}
		if !h.AllowPrivate {
			dialer.Control = refusePrivate
		}
		transport = &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConns: 256,
			MaxIdleConnsPerHost: h.PerHost, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: h.Timeout}
	}
	h.client = &http.Client{Transport: transport, Timeout: h.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Handle sends the request.
func (h *HTTPCallback) Handle(ctx context.Context, t Task) error {
	h.once.Do(h.init)
	req, err := h.request(ctx, &t)
	if err != nil {
		return Permanent(err)
	}
	host := req.URL.Host
	if !h.enter(host) {
		wait := time.Second + jitter(time.Second/2)
		return Postpone(wait, fmt.Errorf("%d requests to %s are on their way", h.PerHost, host))
	}
	defer h.exit(host)
	resp, err := h.client.Do(req)
	if errors.Is(err, ErrPrivateAddress) {
		return Permanent(err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, h.MaxResponse)) // so that the connection can be used again
	return judge(resp)
}

func (h *HTTPCallback) enter(host string) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.hosts[host] >= h.PerHost {
		return false
	}
	h.hosts[host]++
	return true
}

func (h *HTTPCallback) exit(host string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.hosts[host]--; h.hosts[host] == 0 {
		delete(h.hosts, host)
	}
}

func (h *HTTPCallback) request(ctx context.Context, t *Task) (*http.Request, error) {
	if t.URL == "" {
		return nil, errors.New("the task has no URL")
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(t.Method, http.MethodPost), t.URL, bytes.NewReader(t.Body))
	if err != nil {
		return nil, err
	}
	for name, values := range t.Header {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, notAValue) {
			return nil, fmt.Errorf("the header %q cannot be sent: its name or a value has bytes that HTTP has no place for", name)
		}
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	id, at := webhookID(t), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	if h.Secret != "" {
		key, err := secretKey(h.Secret)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Webhook-Signature", sign(key, id, at, t.Body))
	}
	return req, nil
}

func notAValue(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }

// webhookID names an occurrence of a task. A task that replaced another has another body or time,
// and so another name.
func webhookID(t *Task) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s", t.Occurred.UnixMilli(), len(t.Key), t.Key)
	h.Write(t.Body)
	return "msg_" + hex.EncodeToString(h.Sum(nil)[:16])
}

func secretKey(secret string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(secret, "whsec_"); ok {
		key, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return nil, fmt.Errorf("HTTPCallback.Secret is not base64 after whsec_: %w", err)
		}
		return key, nil
	}
	return []byte(secret), nil
}

// sign is the symmetric scheme of Standard Webhooks, v1: HMAC-SHA256 of id, time and body, joined
// by dots.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, at)
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// judge says what an answer means.
func judge(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		err := fmt.Errorf("%s answered %s", resp.Request.URL.Host, resp.Status)
		if after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return RetryAfter(after, err)
		}
		return err
	case code >= 300 && code < 400:
		return Permanent(fmt.Errorf("%s answered %s, and redirects are not followed", resp.Request.URL.Host, resp.Status))
	}
	return Permanent(fmt.Errorf("%s answered %s", resp.Request.URL.Host, resp.Status))
}

// retryAfter reads the header: seconds, or a date. One that says "now", or a date that has passed,
// says nothing: all attempts would be over in an instant.
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	if v == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseUint(v, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second, seconds > 0
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	d := at.Sub(now)
	return min(d, maxRetryAfter), d > 0
}
