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

// Clients and servers of others, in each cipher suite of TLS 1.3: 10 MB come back from us, 1 MB for
// gnutls. OpenSSL's client also updates keys, with and without an answer.
func TestTLSOfStrangers(t *testing.T) {
	testkit.NeedSlow(t, "megabytes through many programs")
	cert, key := pemFiles(t)
	text := strings.Repeat(strings.Repeat("all that glitters is not gold ", 50)+"\n", 10<<20/1501)
	addr := start(t, &loop.Server{TLS: serverTLS(), Limits: loop.Limits{MaxOutbound: 64 << 20}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		priority := "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+" + suite.gnutls
		t.Run("openssl s_client/"+suite.openssl, func(t *testing.T) {
			echoedBy(t, text, tool(t, "openssl"), "s_client", "-quiet", "-connect", addr.String(), "-tls1_3", "-ciphersuites", suite.openssl)
		})
		t.Run("gnutls-cli/"+suite.gnutls, func(t *testing.T) {
			echoedBy(t, text[:1<<20], tool(t, "gnutls-cli"), // it takes its time
				"--logfile=/dev/null", "--insecure", "--priority="+priority, "-p", port, "127.0.0.1")
		})
		t.Run("curl/"+suite.openssl, func(t *testing.T) {
			echoedBy(t, text, tool(t, "curl"), "-sSk", "--tls13-ciphers", suite.openssl, "--tlsv1.3", "-H", "Expect:", "--data-binary", "@"+body, "https://"+web.String())
		})
		t.Run("openssl s_client, KeyUpdate/"+suite.openssl, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, tool(t, "openssl"), "s_client", "-connect", addr.String(), "-tls1_3", "-ciphersuites", suite.openssl)
			in, err1 := cmd.StdinPipe()
			out, err2 := cmd.StdoutPipe()
			if err := errors.Join(err1, err2, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for i, command := range []string{"k", "K", "K", "k", "k", "K"} {
				want := fmt.Sprint("line ", i)
				_, _ = io.WriteString(in, want+"\n")
				for lines.Scan() && !strings.HasSuffix(lines.Text(), want) {
				}
				if !strings.HasSuffix(lines.Text(), want) {
					t.Fatalf("%q does not come back", want)
				}
				_, _ = io.WriteString(in, command+"\n") // at the beginning of what openssl reads
				time.Sleep(50 * time.Millisecond)       // openssl takes a command only at the start of a read
			}
			_ = in.Close()
			_ = cmd.Wait()
		})
		for name, serve := range map[string]func(port string) []string{
			"openssl s_server": func(port string) []string {
				return []string{tool(t, "openssl"), "s_server", "-rev", "-accept", "127.0.0.1:" + port, "-cert", cert, "-key", key, "-tls1_3", "-ciphersuites", suite.openssl}
			},
			"gnutls-serv": func(port string) []string {
				return []string{tool(t, "gnutls-serv"), "--echo", "-p", port, "--x509certfile=" + cert, "--x509keyfile=" + key, "--priority=" + priority}
			},
		} {
			t.Run(name+"/"+suite.openssl, func(t *testing.T) { askServer(t, serve, name == "openssl s_server") })
		}
	}
}

// echoedBy checks that a client gets back what it sends.
func echoedBy(t *testing.T, text, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(in, text) }()
	got := make([]byte, len(text))
	n, err := io.ReadFull(out, got)
	if err != nil || string(got) != text {
		t.Errorf("%d of %d bytes come back, error %v", n, len(text), err)
	}
	_ = in.Close()
	cancel()
	_ = cmd.Wait()
}

// askServer has a Dialer send lines to a server of others, which sends them back, or reversed.
func askServer(t *testing.T, serve func(port string) []string, reversed bool) {
	port := strconv.Itoa(testkit.FreePort(t))
	args := serve(port)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	testkit.Eventually(t, "the server does not listen", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler { return nil }}
	start(t, srv)
	done := make(chan string, 1)
	const rounds = 200
	line := strings.Repeat("abcdefgh", 100)
	next := 0
	loop.Dialer{TLS: clientTLS(), Codec: codec.Lines{}}.Dial(srv.Loops()[0], "tcp://127.0.0.1:"+port, func(c *loop.Conn, err error) loop.Handler {
		if err != nil {
			done <- err.Error()
			return nil
		}
		_ = c.Send([]byte(line))
		return script{Message: func(c *loop.Conn, msg []byte) error {
			want := []byte(line)
			if reversed {
				slices.Reverse(want)
			}
			if next++; next == rounds || !bytes.Equal(msg, want) {
				done <- string(msg)
				c.Close()
				return nil
			}
			return c.Send([]byte(line))
		}, Close: func(_ *loop.Conn, err error) {
			select {
			case done <- fmt.Sprint("closed: ", err):
			default:
			}
		}}
	})
	if got := testkit.Receive(t, "an answer", done); next != rounds {
		t.Errorf("after %d lines it says %q, want %d", next, got, rounds)
	}
}
