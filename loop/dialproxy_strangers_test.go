package loop_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// stranger runs a proxy until the test ends, and waits until it listens at addr.
func stranger(t *testing.T, addr, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (apt-get install %s); .ci/nightly has it", name, name)
	}
	cmd := exec.Command(path, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if _ = cmd.Wait(); t.Failed() {
			t.Logf("%s: %s", name, &out)
		}
	})
	testkit.Eventually(t, name+" listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// Real proxies: tinyproxy speaks CONNECT, and microsocks SOCKS5, both with a password.
func TestDialThroughStrangersProxies(t *testing.T) {
	cert := looptest.Certificate("localhost")
	upstream := func(t *testing.T) (plain, secure string) {
		greet := func(c *loop.Conn) loop.Handler { _ = c.Send([]byte("hello")); return script{} }
		up := &loop.Server{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}, Accept: greet,
			Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}}}
		startWith(t, t.Context(), up)
		port := func(a net.Addr) string { return fmt.Sprintf("tcp://localhost:%d", a.(*net.TCPAddr).Port) }
		return port(up.Addrs()[0]), port(up.Addrs()[1])
	}
	through := func(t *testing.T, scheme, proxy, wrongPassword, noUpstream string) {
		plain, secure := upstream(t)
		nobody := "tcp://" + testkit.FreeAddr(t)
		allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
			srv := &loop.Server{}
			run(srv)
			for _, c := range []struct {
				user, addr string
				cfg        *tls.Config
				want       string // of the error; "" is a line
			}{
				{"me:secret", plain, nil, ""},
				{"me:secret", secure, &tls.Config{InsecureSkipVerify: true}, ""},
				{"me:guess", plain, nil, wrongPassword},
				{"me:secret", nobody, nil, noUpstream},
			} {
				line, err := dialThrough(t, srv, scheme+"://"+c.user+"@"+proxy, c.addr, c.cfg)
				switch {
				case c.want == "" && (line != "hello" || err != nil):
					t.Errorf("%s to %s: %q, %v", c.user, c.addr, line, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%s to %s: %v, want %q", c.user, c.addr, err, c.want)
				}
			}
		})
	}
	t.Run("tinyproxy", func(t *testing.T) {
		addr := testkit.FreeAddr(t)
		_, port, _ := net.SplitHostPort(addr)
		file := filepath.Join(t.TempDir(), "tinyproxy.conf")
		text := "Listen 127.0.0.1\nPort " + port + "\nTimeout 60\nMaxClients 50\nBasicAuth me secret\nLogLevel Warning\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		stranger(t, addr, "tinyproxy", "-d", "-c", file)
		through(t, "http", addr, "401 Unauthorized", "500 Unable to connect")
	})
	t.Run("microsocks", func(t *testing.T) {
		addr := testkit.FreeAddr(t)
		host, port, _ := net.SplitHostPort(addr)
		stranger(t, addr, "microsocks", "-i", host, "-p", port, "-u", "me", "-P", "secret")
		through(t, "socks5h", addr, "authentication failed", "connection refused")
	})
}
