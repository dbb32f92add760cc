package loop_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A connectProxy is what curl -x speaks with: it wants a password, and knows the name "upstream".
type connectProxy struct{ upstream string }

func (p connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:secret")) {
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect || r.Host != "upstream.example:443" {
		http.Error(w, "not there", http.StatusBadGateway)
		return
	}
	up, err := net.Dial("tcp", p.upstream)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	first := make([]byte, len("hello\n")) // so that it comes together with the answer
	if _, err := io.ReadFull(up, first); err != nil {
		first = nil
	}
	_, _ = nc.Write(append([]byte("HTTP/1.1 200 OK\r\nX-Proxy: it\r\n\r\n"), first...))
	pump(nc, up)
}

// pump passes bytes on until both ends have ended.
func pump(a, b net.Conn) {
	go func() { _, _ = io.Copy(a, b); a.Close() }()
	_, _ = io.Copy(b, a)
	b.Close()
}

// socksProxy serves SOCKS5 with a password, for the name "upstream.example".
func socksProxy(t *testing.T, upstream string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		expect := func(want string) bool {
			got := make([]byte, len(want))
			_, err := io.ReadFull(c, got)
			return err == nil && string(got) == want
		}
		if !expect("\x05\x02\x00\x02") {
			return
		}
		_, _ = c.Write([]byte{5, 2})
		if !expect("\x01\x02me\x06secret") {
			_, _ = c.Write([]byte{1, 1})
			return
		}
		_, _ = c.Write([]byte{1, 0})
		if !expect("\x05\x01\x00\x03\x10upstream.example\x01\xbb") {
			_, _ = c.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
			return
		}
		up, err := net.Dial("tcp", upstream)
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("\x05\x00\x00\x03\x01x\x00\x00"))
		pump(c, up)
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return ln.Addr().String()
}

// dialThrough dials by a proxy and returns the first line that comes, or the error.
func dialThrough(t *testing.T, srv *loop.Server, proxy, addr string, cfg *tls.Config) (string, error) {
	t.Helper()
	p, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		line string
		err  error
	}
	results := make(chan result, 2)
	d := loop.Dialer{Codec: codec.Lines{}, Proxy: p, TLS: cfg, Timeout: patience / 2}
	d.Dial(srv.Loops()[0], addr, func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			results <- result{err: err}
			return nil
		}
		return script{Message: func(c *loop.Conn, line []byte) error {
			results <- result{line: string(line)}
			c.Close()
			return nil
		}}
	})
	r := receive(t, results, "a line")
	return r.line, r.err
}

// A Dialer goes through proxies of HTTP and SOCKS5, with TLS and without, and says what they
// refuse.
func TestDialThroughProxies(t *testing.T) {
	cert := looptest.Certificate("upstream.example")
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		greet := func(c *loop.Conn) loop.Handler { _ = c.Send([]byte("hello")); return script{} }
		up := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: greet,
			Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}}}
		run(up)
		srv := &loop.Server{}
		run(srv)
		plain, secure := up.Addrs()[0].String(), up.Addrs()[1].String()
		web := httptest.NewServer(connectProxy{plain})
		defer web.Close()
		connect := web.Listener.Addr().String()
		socks, socksTLS := socksProxy(t, plain), socksProxy(t, secure)
		for _, c := range []struct {
			proxy, addr string
			cfg         *tls.Config
			want        string // of the error; "" is a line
		}{
			{"http://me:secret@" + connect, "tcp://upstream.example:443", nil, ""},
			{"http://me:secret@" + connect, "tcp://upstream.example:https", nil, ""},
			{"http://" + connect, "tcp://upstream.example:443", nil, "407 Proxy Authentication Required"},
			{"http://me:secret@" + connect, "tcp://other.example:443", nil, "502 Bad Gateway"},
			{"http://me:secret@" + socks, "tcp://upstream.example:443", nil, "no answer"},
			{"socks5://me:secret@" + socks, "tcp://upstream.example:443", nil, ""},
			{"socks5h://me:secret@" + socksTLS, "tcp://upstream.example:443", &tls.Config{InsecureSkipVerify: true}, ""},
			{"socks5://me:guess1@" + socks, "tcp://upstream.example:443", nil, "password authentication failed"},
			{"socks5://me:secret@" + socks, "tcp://upstream.nowhere:443", nil, "host unreachable"},
			{"ftp://" + socks, "tcp://upstream.example:443", nil, "want http"},
			{"http://" + socks, "udp://upstream.example:443", nil, "for tcp"},
		} {
			line, err := dialThrough(t, srv, c.proxy, c.addr, c.cfg)
			switch {
			case c.want == "" && (line != "hello" || err != nil):
				t.Errorf("%s to %s: %q, %v", c.proxy, c.addr, line, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s to %s: %v, want %q", c.proxy, c.addr, err, c.want)
			}
		}
	})
}

// A proxy that never answers is given up after Timeout, or when the attempt is cancelled.
func TestDialThroughASilentProxy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	srv := &loop.Server{}
	startWith(t, context.Background(), srv)
	failed := make(chan error, 1)
	d := loop.Dialer{Proxy: &url.URL{Scheme: "http", Host: ln.Addr().String()}, Timeout: 50 * time.Millisecond}
	d.Dial(srv.Loops()[0], "tcp://upstream.example:1", func(_ *loop.Conn, err error) loop.Handler {
		failed <- err
		return nil
	})
	err = receive(t, failed, "an error")
	timeout, ok := err.(net.Error)
	if want := "proxy " + ln.Addr().String() + ": i/o timeout"; !errors.Is(err, os.ErrDeadlineExceeded) || !ok || !timeout.Timeout() || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the attempt ended with %v, want a timeout, and %q", err, want)
	}
	d.Timeout = time.Hour
	cancel := d.Dial(srv.Loops()[0], "tcp://upstream.example:1", func(*loop.Conn, error) loop.Handler {
		t.Error("open was called after cancel")
		return nil
	})
	for range 2 { // both attempts have come as far as the proxy
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && !strings.HasPrefix(line, "CONNECT ") {
			t.Errorf("the proxy was sent %q", line)
		}
	}
	cancel()
}
