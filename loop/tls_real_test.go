package loop_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
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
			addr := start(t, &loop.Server{TLS: cfg, MaxOutbound: 8 << 20, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
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
	if engine.Default() == engine.Net { // it has one that reads for each connection, with TLS or without
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
