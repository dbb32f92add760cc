package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func dialTLS(t testing.TB, addr net.Addr, cfg *tls.Config) *tls.Conn {
	t.Helper()
	c, err := tls.Dial(addr.Network(), addr.String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// Messages of all sizes to 1 MiB come back byte for byte, however they were cut.
func TestTLSEchoOfAllSizes(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			cfg := serverTLS()
			cfg.MinVersion, cfg.MaxVersion = version, version
			addr := start(t, &loop.Server{TLS: cfg, Limits: loop.Limits{MaxOutbound: 8 << 20}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
			var wg sync.WaitGroup
			for seed := range uint64(4) {
				c := dialTLS(t, addr, clientTLS())
				wg.Go(func() { echoSizes(t, c, rand.New(rand.NewPCG(seed, 0))) })
			}
			wg.Wait()
		})
	}
}

func echoSizes(t *testing.T, c net.Conn, r *rand.Rand) {
	for _, n := range []int{1, 64, 16384, 16385, 1 << 20, r.IntN(1 << 20), r.IntN(1 << 16)} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		go func() {
			for rest := want; len(rest) > 0; {
				k := min(len(rest), 1+r.IntN(100_000))
				if _, err := c.Write(rest[:k]); err != nil {
					return
				}
				rest = rest[k:]
			}
		}()
		got := make([]byte, n)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %v, equal %v", n, err, bytes.Equal(got, want))
			return
		}
	}
}

func TestTLSWithoutGoroutines(t *testing.T) {
	n := 200
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		n = 5000
	}
	testkit.NeedFiles(t, 2*n+100)
	// Each loop keeps a goroutine or two for the next handshakes.
	server := &loop.Server{NumLoops: 2, TLS: serverTLS(), Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	addr := start(t, server)
	dialTLS(t, addr, clientTLS()) // what starts with the first connection
	before := runtime.NumGoroutine()
	for range n {
		c, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := tls.Client(c, clientTLS()).Handshake(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "all are in", func() bool { return server.Stats().Conns == n+1 })
	most := 10
	if testhook.DefaultEngine() == "net" { // it has one that reads for each connection, with TLS or without
		most += n
	}
	what := fmt.Sprintf("%d connections have at most %d goroutines", n, most)
	testkit.Eventually(t, what, func() bool { return runtime.NumGoroutine()-before <= most })
}

// pemFiles writes the test's certificate and key.
func pemFiles(t testing.TB) (cert, key string) {
	t.Helper()
	return testkit.CertificateFiles(t, testCertificate())
}

// A certificate is replaced under a server that runs; files that are no good change nothing.
func TestCertificateIsReplaced(t *testing.T) {
	cert, key := pemFiles(t)
	files := &certificateFile{cert: cert, key: key}
	if err := files.load(); err != nil {
		t.Fatal(err)
	}
	addr := start(t, &loop.Server{TLS: &tls.Config{GetCertificate: files.get}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
	serial := func() string {
		c := dialTLS(t, addr, &tls.Config{InsecureSkipVerify: true})
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if err := os.WriteFile(cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := files.load(); err == nil || serial() != first {
		t.Errorf("with a broken file: %v, and another certificate", err)
	}
	next := looptest.Certificate("test")
	testkit.WriteCertificate(t, next, cert, key)
	if err := files.load(); err != nil || serial() != next.Leaf.SerialNumber.String() {
		t.Errorf("not replaced: %v", err)
	}
}

// tool returns the path of a program that strangers wrote, or skips the test.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed; CI has it", name)
	}
	return path
}

func TestOpenSSL(t *testing.T) {
	openssl := tool(t, "openssl")
	cert, key := pemFiles(t)
	cfg := serverTLS()
	cfg.NextProtos = []string{"loopwheel/1"}
	cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, clientTLS().RootCAs
	addr := start(t, &loop.Server{TLS: cfg, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			s, _ := c.TLS()
			defer c.Close() // which ends openssl
			return c.Send(fmt.Appendf(nil, "%s %s resumed=%v alpn=%s certs=%d", msg,
				tls.VersionName(s.Version), s.DidResume, s.NegotiatedProtocol, len(s.PeerCertificates)))
		})
	}})
	for _, version := range []string{"tls1_2", "tls1_3"} {
		session := filepath.Join(t.TempDir(), "session")
		name := map[string]string{"tls1_2": "TLS 1.2", "tls1_3": "TLS 1.3"}[version]
		base := []string{"s_client", "-connect", addr.String(), "-" + version, "-CAfile", cert, "-servername", "test",
			"-verify_return_error", "-ign_eof"}
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"-alpn", "loopwheel/1", "-sess_out", session}, " resumed=false alpn=loopwheel/1 certs=0"},
			{[]string{"-sess_in", session}, " resumed=true alpn= certs=0"},
			{[]string{"-cert", cert, "-key", key}, " resumed=false alpn= certs=1"},
		} {
			out := askOpenSSL(t, openssl, append(base, tt.args...))
			if want := "hello " + name + tt.want; !strings.Contains(out, want) {
				t.Errorf("%s %v: no %q in\n%s", version, tt.args, want, out)
			}
		}
	}
}

// askOpenSSL sends a line, and returns what openssl says until the server has closed the
// connection.
func askOpenSSL(t *testing.T, openssl string, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, openssl, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(in, "hello\n")
	_ = cmd.Wait() // what it has said is what counts
	return out.String()
}

// Clients and servers of others, in each cipher suite of TLS 1.3: 10 MB come back in lines of all
// lengths. Either side updates keys, ends its output first, resumes a session, and has a
// certificate.
func TestTLSOfStrangers(t *testing.T) {
	testkit.NeedSlow(t, "megabytes through many programs")
	cert, key := pemFiles(t)
	r := rand.New(rand.NewPCG(testkit.Seed(t, 1), 0))
	var lines []string
	glitter := strings.Repeat("all that glitters is not gold ", 500)
	for size := 0; size < 10<<20; size += len(lines[len(lines)-1]) {
		lines = append(lines, fmt.Sprint(glitter[:r.IntN(1+r.IntN(len(glitter)))], size, "\n"))
	}
	text := strings.Join(lines, "")
	cfg := serverTLS()
	cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, clientTLS().RootCAs
	addr := start(t, &loop.Server{TLS: cfg, Limits: loop.Limits{MaxOutbound: 64 << 20}, Accept: func(c *loop.Conn) loop.Handler {
		c.OnEOF(func() {
			s, _ := c.TLS()
			_ = c.Send(fmt.Appendf(nil, "resumed=%v certs=%d\n", s.DidResume, len(s.PeerCertificates)))
			c.Close()
		})
		return loop.HandlerFunc(echo)
	}})
	web := start(t, &loop.Server{TLS: serverTLS(), Limits: loop.Limits{MaxOutbound: 64 << 20}, Accept: func(c *loop.Conn) loop.Handler {
		inBody := false
		return loop.HandlerFunc(func(c *loop.Conn, p []byte) error {
			if bytes.HasPrefix(p, []byte("GET ")) {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
				return nil
			}
			if !inBody {
				_, p, inBody = bytes.Cut(p, []byte("\r\n\r\n"))
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(text))
			}
			return c.Send(p)
		})
	}})
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("chromium", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		page, err := exec.CommandContext(ctx, tool(t, "chromium"), "--headless", "--no-sandbox", "--ignore-certificate-errors",
			"--user-data-dir="+t.TempDir(), "--dump-dom", "https://"+web.String()).Output()
		if !strings.Contains(string(page), text) {
			t.Errorf("a page of %d bytes has not the text, %v", len(page), err)
		}
	})
	_, port, _ := net.SplitHostPort(addr.String())
	for _, suite := range []struct{ openssl, gnutls string }{
		{"TLS_AES_128_GCM_SHA256", "AES-128-GCM"}, {"TLS_AES_256_GCM_SHA384", "AES-256-GCM"}, {"TLS_CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"},
	} {
		openssl := []string{tool(t, "openssl"), "s_client", "-connect", addr.String(), "-tls1_3", "-ciphersuites", suite.openssl}
		priority := "--priority=NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+" + suite.gnutls
		gnutls := []string{tool(t, "gnutls-cli"), "--logfile=/dev/null", "--insecure", priority, "-p", port, "127.0.0.1"}
		t.Run("openssl s_client/"+suite.openssl, func(t *testing.T) {
			echoedBy(t, text, "", append(openssl, "-quiet")...)
		})
		t.Run("gnutls-cli/"+suite.gnutls, func(t *testing.T) { echoedBy(t, text, "resumed=false certs=0\n", gnutls...) })
		t.Run("curl/"+suite.openssl, func(t *testing.T) {
			echoedBy(t, text, "", tool(t, "curl"), "-sSk", "--tls13-ciphers", suite.openssl, "--tlsv1.3", "-H", "Expect:", "--data-binary", "@"+body, "https://"+web.String())
		})
		t.Run("openssl s_client, KeyUpdate/"+suite.openssl, func(t *testing.T) {
			typed(t, []string{"k", "K", "K", "k", "k", "K"}, "", nil, openssl...)
		})
		t.Run("gnutls-cli, KeyUpdate and resumption/"+suite.gnutls, func(t *testing.T) {
			typed(t, []string{"^rekey^", "^rekey1^", "^resume^", "^rekey1^", "^rekey^"}, "resumed=true certs=1",
				nil, append(gnutls, "--inline-commands", "--x509certfile="+cert, "--x509keyfile="+key)...)
		})
		own := strconv.Itoa(testkit.FreePort(t))
		openssl = []string{openssl[0], "s_server", "-accept", "127.0.0.1:" + own, "-cert", cert, "-key", key, "-tls1_3", "-ciphersuites", suite.openssl}
		t.Run("openssl s_server, KeyUpdate/"+suite.openssl, func(t *testing.T) {
			typed(t, []string{"k", "K", "K", "k"}, "", func() {
				opened := make(chan error, 1)
				dialStranger(t, own, clientTLS(), func(*loop.Conn) loop.Handler { opened <- nil; return loop.HandlerFunc(echo) }, opened)
				testkit.Want(t, "the handshake", testkit.Receive(t, "the handshake", opened), nil)
			}, openssl...)
		})
		t.Run("openssl s_server/"+suite.openssl, func(t *testing.T) {
			askServer(t, lines, own, true, append(openssl, "-rev", "-quiet", "-Verify", "1", "-verify_return_error", "-CAfile", cert)...)
		})
		t.Run("gnutls-serv/"+suite.openssl, func(t *testing.T) {
			askServer(t, lines, own, false, tool(t, "gnutls-serv"), "--echo", "-p", own, "--x509certfile="+cert, "--x509keyfile="+key, priority,
				"--require-client-cert", "--verify-client-cert", "--x509cafile="+cert)
		})
	}
}

// echoedBy checks that a client gets back what it sends. With a last line to come, it ends its
// output first.
func echoedBy(t *testing.T, text, last string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // gnutls-cli takes its time
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(in, text)
		if last != "" {
			_ = in.Close()
		}
	}()
	got := make([]byte, len(text)+len(last))
	n, err := io.ReadFull(out, got)
	if err != nil || string(got) != text+last {
		t.Errorf("%d of %d bytes come back, error %v", n, len(got), err)
	}
	_ = in.Close()
	cancel()
	_ = cmd.Wait()
}

// typed types lines into a program, and commands between them: the lines come back. Then it ends
// the program's input, and last comes. ready, unless nil, is called once the program runs.
func typed(t *testing.T, commands []string, last string, ready func(), args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if ready != nil {
		ready()
	}
	lines := bufio.NewScanner(out)
	comes := func(want string) {
		t.Helper()
		for lines.Scan() && !strings.HasSuffix(lines.Text(), want) {
		}
		if !strings.HasSuffix(lines.Text(), want) {
			t.Fatalf("%q does not come", want)
		}
	}
	for i, command := range commands {
		line := fmt.Sprint("line ", i)
		_, _ = io.WriteString(in, line+"\n")
		comes(line)
		_, _ = io.WriteString(in, command+"\n") // at the beginning of what the program reads
		time.Sleep(50 * time.Millisecond)       // openssl takes a command only at the start of a read
	}
	_, _ = io.WriteString(in, "done\n")
	comes("done")
	_ = in.Close()
	if last != "" {
		comes(last)
	}
	cancel()
	_ = cmd.Wait()
}

// dialStranger dials a server of others once it listens.
func dialStranger(t *testing.T, port string, cfg *tls.Config, opened func(c *loop.Conn) loop.Handler, failed chan<- error) {
	t.Helper()
	testkit.Eventually(t, "the server does not listen", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler { return nil }}
	start(t, srv)
	loop.Dialer{TLS: cfg, Codec: codec.Lines{}}.Dial(srv.Loops()[0], "tcp://127.0.0.1:"+port, func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			failed <- err
			return nil
		}
		return opened(c)
	})
}

// askServer has a Dialer with a certificate send lines to a server of others, which sends them
// back, or reversed, and then ends its output. With a cache of sessions crypto/tls keeps the
// connection.
func askServer(t *testing.T, lines []string, port string, reversed bool, args ...string) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	cache := tls.NewLRUClientSessionCache(1)
	for i, sessions := range []tls.ClientSessionCache{nil, cache, cache} {
		cfg := clientTLS()
		cfg.Certificates, cfg.ClientSessionCache = serverTLS().Certificates, sessions
		closed, next, resumed := make(chan error, 1), 0, false
		if i > 0 {
			lines = lines[:100]
		}
		send := func(c *loop.Conn) error { return c.Send([]byte(strings.TrimSuffix(lines[next], "\n"))) }
		dialStranger(t, port, cfg, func(c *loop.Conn) loop.Handler {
			s, _ := c.TLS()
			resumed = s.DidResume
			_ = send(c)
			return script{Message: func(c *loop.Conn, msg []byte) error {
				if string(msg) == gnutlsUpdated {
					return send(c)
				}
				want := []byte(strings.TrimSuffix(lines[next], "\n"))
				if reversed {
					slices.Reverse(want)
				}
				if !bytes.Equal(msg, want) {
					return fmt.Errorf("line %d of %d bytes comes back as %d others", next, len(want), len(msg))
				}
				if next++; next == len(lines) {
					c.CloseWrite()
					return nil
				}
				if !reversed && next%600 == 0 { // GnuTLS takes eight updates a second
					return c.Send([]byte("**REHANDSHAKE**")) // gnutls-serv updates keys, and wants ours updated
				}
				return send(c)
			}, Close: func(_ *loop.Conn, err error) { closed <- err }}
		}, closed)
		if err := testkit.Receive(t, "the end", closed); next != len(lines) || err != io.EOF || resumed != (i == 2) {
			t.Errorf("connection %d: %d of %d lines, resumed %v, ended with %v", i, next, len(lines), resumed, err)
		}
	}
}

const gnutlsUpdated = "Successfully executed command"
