package websocket_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// manyAnswers is a handler that does what handlers of net/http can do.
func manyAnswers() http.Handler {
	mux := http.NewServeMux()
	file := strings.Repeat("0123456789", 500)
	mux.HandleFunc("/file.txt", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "file.txt", time.Unix(1e9, 0), strings.NewReader(file))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q %v %d %v %q %v", r.Method, r.RequestURI, r.Proto, r.Host, r.TransferEncoding, r.ContentLength, r.Trailer, body, err)
	})
	mux.HandleFunc("/ignores", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "not read") })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "a body")
	})
	mux.HandleFunc("/early", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "final")
	})
	mux.HandleFunc("/flushed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for i := range 3 {
			fmt.Fprintf(w, "piece %d", i)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("X-Sum", "3")
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("large "), 100_000)) })
	mux.HandleFunc("/hijacked", func(w http.ResponseWriter, _ *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "by hand")
	})
	mux.HandleFunc("/aborts", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "lost")
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/deadlines", func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, err, c.SetReadDeadline(time.Now().Add(time.Hour)), c.SetWriteDeadline(time.Now().Add(time.Hour)))
	})
	mux.HandleFunc("/closes", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	mux.HandleFunc("/encoded", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "no gzip")
	})
	mux.Handle("/moved", http.RedirectHandler("/file.txt", http.StatusFound))
	return mux
}

// rawRequests are requests as they are on the wire, with the end of the peer's output after them.
func rawRequests() (all []string) {
	add := func(requests ...string) { all = append(all, requests...) }
	paths := []string{
		"/file.txt", "/echo", "/echo?a=1&b=%20", "/ignores", "/early", "/flushed", "/large", "/hijacked", "/aborts",
		"/deadlines", "/closes", "/encoded", "/moved", "/nowhere", "/a//b/../file.txt", "http://other/echo",
		"/status/200", "/status/201", "/status/204", "/status/205", "/status/301", "/status/304", "/status/404", "/status/500", "/status/999",
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			add(method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		add("GET "+path+" HTTP/1.0\r\n\r\n", "GET "+path+" HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PURGE", "get", "G-T", "", "GE(T"} {
		for _, path := range []string{"/echo", "/file.txt", "*", "x:80", ""} {
			add(method + " " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}
	for _, header := range []string{
		"Range: bytes=0-9", "Range: bytes=-5", "Range: bytes=4990-", "Range: bytes=9999-", "Range: bytes=0-1,5-6", "Range: bytes=5-1", "Range: lines=1-2",
		"Range: bytes=0-9\r\nIf-Range: \"v1\"", "Range: bytes=0-9\r\nIf-Range: \"v2\"", `If-None-Match: "v1"`, `If-None-Match: W/"v1", "v2"`, "If-None-Match: *",
		`If-Match: "v1"`, `If-Match: "v2"`, "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT", "If-Modified-Since: Sat, 08 Sep 2001 01:46:40 GMT",
		"If-Unmodified-Since: Sat, 08 Sep 2001 01:46:40 GMT", "If-Unmodified-Since: nonsense", "Accept-Encoding: gzip", "X-Empty:", "X-Folded: a\r\n b",
		"Bad Name: x", "Bad: \x01", "Name : x", "no colon", "Host: y", "X: " + strings.Repeat("y", 15<<10), "X: " + strings.Repeat("y", 30<<10),
		"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c", "Expect: something",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			add(method + " /file.txt HTTP/1.1\r\nHost: x\r\n" + header + "\r\n\r\n")
		}
	}
	for _, host := range []string{"", "Host:\r\n", "Host: a b\r\n", "Host: a/../b\r\n", "Host: \"\r\n", "Host: [::1]:80\r\n", "host: x\r\n"} {
		add("GET /echo HTTP/1.1\r\n"+host+"\r\n", "GET /echo HTTP/1.0\r\n"+host+"\r\n")
	}
	const post = " HTTP/1.1\r\nHost: x\r\n"
	for _, path := range []string{"POST /echo", "POST /ignores", "PUT /deadlines", "POST /hijacked", "POST /nowhere", "HEAD /echo"} {
		for _, rest := range []string{
			"Content-Length: 4\r\n\r\nbody", "Content-Length: 0\r\n\r\n", "Content-Length: 9\r\n\r\nbody", "Content-Length: x\r\n\r\nbody",
			"Content-Length: -1\r\n\r\n", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody", "Content-Length: 4\r\n\r\nbody and more",
			"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
			"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n", "Transfer-Encoding: gzip\r\n\r\n",
			"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "Expect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
		} {
			add(path + post + rest)
		}
	}
	const get = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
	add("POST /echo" + post + "Content-Length: 300000\r\n\r\n" + strings.Repeat("z", 300_000))
	add(get+get+"GET /file.txt HTTP/1.0\r\n\r\n"+get, get+"nonsense\r\n\r\n", "\r\n"+get, "\r\n\r\n"+get, "GET /echo HTTP/1.1\nHost: x\n\n",
		"GET /echo HTTP/1.1\r\nHost: x\n\r\n"+get, "GET /echo\r\n\r\n", "GET /echo HTTP/2.0\r\n\r\n", "GET /echo HTTP/1.2\r\nHost: x\r\n\r\n", "GET /echo http/1.1\r\n\r\n",
		"GET /with space HTTP/1.1\r\nHost: x\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", "12345\r\n\r\n",
		"GET /"+strings.Repeat("long", 10_000)+" HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	return all
}

// changing is what differs between two answers to one request: dates, and random boundaries.
var changing = regexp.MustCompile(`Date: [^\r]*|[0-9a-f]{60}`)

// conversation sends a request in pieces, ends the output, and returns all that is answered.
func conversation(t *testing.T, addr, request string, size int) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	go func() {
		for rest := request; rest != ""; {
			n := min(size, len(rest))
			_, _ = io.WriteString(c, rest[:n])
			rest = rest[n:]
		}
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil && len(got) == 0 {
		return "an error" // after a reset, of what nobody reads
	}
	return changing.ReplaceAllString(string(got), "-")
}

// Plain HTTP gets the answers of net/http, byte for byte, but for those that TestHTTPDiffers lists.
func TestHTTPIsThatOfNetHTTP(t *testing.T) {
	h, quiet := manyAnswers(), log.New(io.Discard, "", 0)
	ref := httptest.NewUnstartedServer(h)
	ref.Config.MaxHeaderBytes, ref.Config.ErrorLog = websocket.DefaultMaxHandshake, quiet
	ref.Start()
	defer ref.Close()
	s := start(t, &websocket.Codec{Path: "/ws", HTTP: h, HTTPServer: &http.Server{ErrorLog: quiet}})
	all := rawRequests()
	if len(all) < 300 {
		t.Fatalf("%d requests, want 300", len(all))
	}
	for i, request := range all {
		for _, size := range []int{1 << 20, 11} {
			if size < len(request)/200 {
				continue
			}
			got, want := conversation(t, s.LocalAddr().String(), request, size), conversation(t, ref.Listener.Addr().String(), request, size)
			if got != want {
				t.Errorf("%d: %.80q in pieces of %d:\ngot  %.300q\nwant %.300q", i, request, size, got, want)
			}
		}
	}
}

// The answers that differ from those of net/http; docs/websocket.md lists them.
func TestHTTPDiffers(t *testing.T) {
	s := start(t, &websocket.Codec{Path: "/ws", HTTP: manyAnswers()})
	for request, want := range map[string]string{
		"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n": "HTTP/1.1 400 Bad Request\r\n", // 404
		"GET /echo HTTP/1.1\r\nHost":                                "",                             // 400
	} {
		t.Run(request, func(t *testing.T) {
			got := conversation(t, s.LocalAddr().String(), request, len(request))
			if want == "" && got != "" || !strings.HasPrefix(got, want) {
				t.Errorf("answered %q, want %q first", got, want)
			}
		})
	}
}

// Requests and a WebSocket follow each other on one connection: plain, and over TLS.
func TestUpgradeAfterRequests(t *testing.T) {
	cert := testkit.Certificate("127.0.0.1")
	for name, cfg := range map[string]*tls.Config{"plain": nil, "tls": {Certificates: []tls.Certificate{cert}}} {
		t.Run(name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s %v", r.URL.Path, body, r.TLS != nil)
			})
			accepted := make(chan error, 10)
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, TLS: cfg, Codec: &websocket.Codec{HTTP: h, Path: "/chat"}, Accept: func(c *loop.Conn) loop.Handler {
				_ = c.Send([]byte("welcome"))
				return echo{accepted}
			}}
			ctx, stop := context.WithCancel(t.Context())
			testkit.WantErr(t, "Start", srv.Start(ctx), nil)
			defer func() { stop(); _ = srv.Wait() }()
			nc, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if cfg != nil {
				nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
			}
			c := &client{Conn: nc, in: bufio.NewReader(nc)}
			const post = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
			c.write(t, post+"1!"+post+"2!"+request("x")+string(text("at once").wire()))
			for _, n := range []string{"1!", "2!"} {
				body, err := io.ReadAll(c.response(t).Body)
				testkit.WantErr(t, "the answer", err, nil)
				testkit.Want(t, "the answer", string(body), fmt.Sprintf("/x %s %v", n, cfg != nil))
			}
			testkit.Want(t, "the status", c.response(t).StatusCode, http.StatusSwitchingProtocols)
			testkit.Want(t, "the first message", c.next(), `text "welcome"`)
			testkit.Want(t, "the second message", c.next(), `text "at once"`)
			testkit.WantErr(t, "the first OnClose", testkit.Receive(t, "OnClose", accepted), websocket.ErrHTTP)
			stats := srv.Stats()
			testkit.Want(t, "connections accepted", stats.Accepted, 1)
			testkit.Want(t, "connections open", stats.Conns, 1)
			testkit.Want(t, "connections closed", stats.Closed, 0)
		})
	}
}

// In virtual time: the default timeouts, a slow download, the drain, panics, the user's
// http.Server.
func TestHTTPServer(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	for name, test := range map[string]struct {
		codec *websocket.Codec
		run   func(t *testing.T, srv *looptest.Server, p *looptest.Peer)
	}{
		"a spare connection is closed without a word": {&websocket.Codec{HTTP: hello}, func(t *testing.T, _ *looptest.Server, p *looptest.Peer) {
			testkit.Pass(websocket.DefaultHandshakeTimeout + time.Second)
			testkit.Want(t, "closed", p.Closed(), true)
			testkit.Want(t, "received", p.Received(), "")
		}},
		"an idle connection is closed after two minutes": {&websocket.Codec{HTTP: hello}, func(t *testing.T, _ *looptest.Server, p *looptest.Peer) {
			p.Send(get)
			testkit.Pass(websocket.DefaultHTTPIdleTimeout - time.Second)
			testkit.Want(t, "closed early", p.Closed(), false)
			testkit.Pass(2 * time.Second)
			testkit.Want(t, "closed", p.Closed(), true)
		}},
		"a slow reader gets all": {&websocket.Codec{HTTP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1<<20))
			panic(http.ErrAbortHandler) // which closes
		})}, func(t *testing.T, _ *looptest.Server, p *looptest.Peer) {
			p.Block(0)
			p.Send("GET / HTTP/1.0\r\n\r\n")
			got := 0
			for range 400 {
				testkit.Pass(time.Second)
				n := len(p.Received())
				p.Take(n)
				got += n
				p.Block(4 << 10)
			}
			testkit.Want(t, "bytes of body", got > 1<<20, true)
		}},
		"a long body behind the second piece of a head": {&websocket.Codec{HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		})}, func(t *testing.T, _ *looptest.Server, p *looptest.Peer) {
			p.Send("POST / HTTP/1.0\r\nContent-Le")
			p.Send("ngth: 30000\r\n\r\n" + strings.Repeat("x", 30_000))
			testkit.Want(t, "the answer is whole", strings.HasSuffix(p.Received(), "\r\n\r\n30000 <nil>"), true)
		}},
		"a head that is too long, in pieces": {&websocket.Codec{HTTP: hello}, func(t *testing.T, _ *looptest.Server, p *looptest.Peer) {
			p.Send("GET / HTTP/1.1\r\nX: ")
			p.Send(strings.Repeat("x", 30_000))
			testkit.Want(t, "the status", strings.HasPrefix(p.Received(), "HTTP/1.1 431 "), true)
		}},
		"the drain": {&websocket.Codec{HTTP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			testkit.Pass(5 * time.Second)
			_, _ = io.WriteString(w, "late")
		})}, func(t *testing.T, srv *looptest.Server, busy *looptest.Peer) {
			idle := srv.Open()
			idle.Send(get)
			testkit.Pass(6 * time.Second)
			busy.Send(get)
			begun := time.Now()
			srv.Shutdown()
			testkit.Want(t, "the idle one is closed", idle.Closed(), true)
			testkit.Want(t, "the busy one is closed", busy.Closed(), false)
			testkit.WantErr(t, "Wait", srv.Stop(), nil)
			testkit.Want(t, "the busy one has its answer", strings.HasSuffix(busy.Received(), "late"), true)
			testkit.Want(t, "the drain took", time.Since(begun), 6*time.Second) // with a second for the peer to close
		}},
		"a panic is logged and counted": {&websocket.Codec{HTTP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("in a handler") })},
			func(t *testing.T, srv *looptest.Server, p *looptest.Peer) {
				p.Send(get)
				testkit.Want(t, "closed", p.Closed(), true)
				testkit.Want(t, "received", p.Received(), "")
				testkit.Want(t, "panics", srv.Stats().Panics, 1)
				testkit.Want(t, "closed for them", srv.Stats().ClosedBy["panic"], 1)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{Codec: test.codec, Drain: loop.Drain{Timeout: time.Minute}, Accept: func(c *loop.Conn) loop.Handler {
					c.AfterFunc(20*time.Second, c.Close) // a login timeout is no business of pages
					return echo{make(chan error, 1)}
				}})
				test.run(t, srv, srv.Open())
			})
		})
	}
	t.Run("the user's own", func(t *testing.T) {
		var states, contexts atomic.Int64
		own := &http.Server{
			Handler: hello, ReadTimeout: time.Hour,
			ConnState: func(net.Conn, http.ConnState) { states.Add(1) },
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
				contexts.Add(1)
				return ctx
			},
		}
		s := start(t, &websocket.Codec{HTTPServer: own, MaxHandshake: 4 << 10})
		for range 2 {
			r, err := http.Get("http://" + s.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			_ = r.Body.Close()
			testkit.Want(t, "the answer", string(body), "hello")
		}
		testkit.Eventually(t, "new, active, idle, active, idle", func() bool { return states.Load() == 5 })
		testkit.Want(t, "calls of ConnContext", contexts.Load(), 1)
		testkit.Want(t, "ReadHeaderTimeout", own.ReadHeaderTimeout, time.Hour)
		testkit.Want(t, "MaxHeaderBytes", own.MaxHeaderBytes, 4<<10)
		testkit.WantErr(t, "Shutdown", own.Shutdown(t.Context()), nil)
		if got := conversation(t, s.LocalAddr().String(), get, len(get)); got != "" && got != "an error" {
			t.Errorf("after Shutdown it answers %q", got)
		}
	})
}
