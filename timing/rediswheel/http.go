package rediswheel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"
)

// HTTPCallback is a [Handler] that sends each task as an HTTP request, with Task.URL, Task.Method,
// Task.Header and Task.Body. An empty Method means POST. The zero value is ready to use. It must
// not be copied or changed once in use. [NewHTTPCallback] reports an invalid Secret.
//
// A status of 2xx is success. A status of 410 is final: the task is dead. Everything else is
// retried: transport errors, other statuses, and redirects, which are not followed. The delay is
// that of Config.Backoff, or of a Retry-After header in the future, which counts as an hour if it
// is longer.
//
// Requests carry the headers of Standard Webhooks (standardwebhooks.com). Webhook-Id is the same in
// all attempts of one occurrence, so that a receiver can detect duplicates. A task that was added
// again while it ran, or after it had finished, has another one. The others are Webhook-Timestamp
// and, with a Secret, Webhook-Signature.
type HTTPCallback struct {
	Timeout     time.Duration // for one request, including the response; 0 means 10 seconds
	MaxResponse int64         // bytes of a response that are read; a longer one counts, too; 0 means 64 KiB

	// PerHost is the maximum number of concurrent requests to one host and port, so that a slow
	// host does not take all places. Tasks above it are postponed by about a second, and no attempt
	// is counted. 0 means 16.
	PerHost int

	Secret string // signs requests: "whsec_" and the key in base64, or the key itself

	// SecretFor returns the Secret for the endpoint of a task. "" stands for Secret. An invalid
	// secret fails the attempt. SecretFor is called on many goroutines. nil means that all tasks
	// use Secret.
	SecretFor func(t Task) string

	// AllowPrivate permits requests to addresses outside the public Internet. Anyone who can add
	// tasks can then reach them. Addresses are checked after name resolution.
	AllowPrivate bool

	// Transport replaces the default transport, which uses no proxy. The replacement is then
	// responsible for AllowPrivate and for the dial timeout. nil means the default transport.
	Transport http.RoundTripper

	once   sync.Once
	client *http.Client
	lock   sync.Mutex
	hosts  map[string]int // requests in flight
}

// NewHTTPCallback returns h, or an error if its Secret is invalid.
func NewHTTPCallback(h *HTTPCallback) (*HTTPCallback, error) {
	if _, err := signingKey(h.Secret); err != nil {
		return nil, err
	}
	return h, nil
}

// ErrPrivateAddress reports that HTTPCallback refused to connect to an address. It is permanent.
var ErrPrivateAddress = errors.New("rediswheel: the address is not public, and HTTPCallback.AllowPrivate is not set")

// special are the networks of the IANA special-purpose address registries (RFC 6890) of November
// 2025, and multicast. Of IPv6, all that is not in 2000::/3 is special.
//
//go:embed special.txt
var special string

// refusePrivate is called by the dialer with the address to which it is about to connect.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	a := ap.Addr().Unmap().WithZone("")
	public := err == nil && (a.Is4() || netip.MustParsePrefix("2000::/3").Contains(a))
	for line := range strings.Lines(special) {
		public = public && !netip.MustParsePrefix(strings.Fields(line)[0]).Contains(a)
	}
	if !public {
		return fmt.Errorf("%w: %s", ErrPrivateAddress, address)
	}
	return nil
}

func (h *HTTPCallback) init() {
	h.Timeout = cmp.Or(h.Timeout, 10*time.Second)
	h.MaxResponse = cmp.Or(h.MaxResponse, 64<<10)
	h.PerHost = cmp.Or(h.PerHost, 16)
	h.hosts = make(map[string]int)
	transport := h.Transport
	if transport == nil {
		dialer := &net.Dialer{Timeout: h.Timeout, KeepAlive: 30 * time.Second}
		if !h.AllowPrivate {
			dialer.Control = refusePrivate
		}
		transport = &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConns: 256,
			MaxIdleConnsPerHost: h.PerHost, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: h.Timeout,
			MaxResponseHeaderBytes: 64 << 10}
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
	secret := h.Secret
	if h.SecretFor != nil {
		secret = cmp.Or(h.SecretFor(t), secret)
	}
	if err := sign(req, secret, t.Body); err != nil {
		return err
	}
	host := hostPort(req.URL)
	if !h.count(host, 1) {
		wait := time.Second + jitter(time.Second/2)
		return Postpone(wait, fmt.Errorf("%d requests to %s are on their way", h.PerHost, host))
	}
	defer h.count(host, -1)
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

// hostPort returns the host and port of a URL, the same for all spellings of a name or address.
func hostPort(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	} else if ascii, err := httpguts.PunycodeHostPort(host); err == nil {
		host = ascii
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// count adds n to the requests in flight to a host, unless there are too many already.
func (h *HTTPCallback) count(host string, n int) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.hosts[host]+n > h.PerHost {
		return false
	}
	if h.hosts[host] += n; h.hosts[host] == 0 {
		delete(h.hosts, host)
	}
	return true
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
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(strings.Join(values, "")) {
			return nil, fmt.Errorf("the header %q cannot be sent: its name or a value has bytes that HTTP has no place for", name)
		}
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Host = cmp.Or(req.Header.Get("Host"), req.Host)
	id, at := webhookID(t), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	return req, nil
}

// webhookID returns an ID of an occurrence of a task. A task that replaced another one has another
// body or time, and so another ID.
func webhookID(t *Task) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s%s", t.Occurred.UnixMilli(), len(t.Key), t.Key, t.Body))
	return fmt.Sprintf("msg_%x", sum[:16])
}

// sign signs a request by the symmetric scheme of Standard Webhooks, v1: HMAC-SHA256 of id, time
// and body, joined by dots. Without a secret it does nothing.
func sign(req *http.Request, secret string, body []byte) error {
	key, err := signingKey(secret)
	if err != nil || len(key) == 0 {
		return err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Timestamp"), body)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return nil
}

// signingKey decodes a secret to its key.
func signingKey(secret string) (key []byte, err error) {
	coded, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return []byte(secret), nil
	}
	if key, err = base64.StdEncoding.DecodeString(coded); err != nil || len(key) == 0 {
		return nil, wrap(ErrConfig, "an HTTPCallback's Secret has to be a key in base64 after whsec_")
	}
	return key, nil
}

// judge returns the error that a response means.
func judge(resp *http.Response) error {
	err := fmt.Errorf("%s answered %s", resp.Request.URL.Host, resp.Status)
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusGone:
		return Permanent(err)
	}
	if d := retryAfter(resp.Header.Get("Retry-After")); d > 0 {
		return RetryAfter(min(d, time.Hour), err)
	}
	return err
}

// retryAfter parses the header: seconds, or a date. It ignores a time that is not positive, because
// all attempts would otherwise be used up in an instant.
func retryAfter(v string) time.Duration {
	if at, err := http.ParseTime(v); err == nil {
		return time.Until(at)
	}
	seconds, _ := strconv.ParseUint(v, 10, 32) // the maximum is more than an hour
	return time.Duration(seconds) * time.Second
}
