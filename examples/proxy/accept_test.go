package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/haproxytest"
	"github.com/loopwheel/loopwheel/internal/listening"
)

// headerBackend is a backend that says the PROXY header that it got, version 2, and then all else.
func headerBackend(t *testing.T) string {
	t.Helper()
	return listening.TCP(t, func(c net.Conn) {
		head := make([]byte, 16)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		addrs := make([]byte, int(head[14])<<8|int(head[15]))
		if _, err := io.ReadFull(c, addrs); err != nil {
			return
		}
		fmt.Fprintf(c, "%x %x\n", head[12:14], addrs)
		_, _ = io.Copy(c, c)
	}).Addr().String()
}

const (
	v1    = "PROXY TCP4 192.0.2.7 198.51.100.1 4660 443\r\n"
	v2    = signature + "\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\x12\x34\x01\xbb"
	v2For = "2111 c0000207c6336401123401bb\n" // what v1 and v2 say
)

// The client is who its header says, and bytes that come with the header are not lost, nor those of
// one that comes in pieces.
func TestAcceptProxy(t *testing.T) {
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "-check", "0")
	const v6 = "PROXY TCP6 2001:db8::7 2001:db8::1 4660 443\r\n"
	const v6For = "2121 20010db800000000000000000000000720010db8000000000000000000000001123401bb\n"
	for _, c := range []struct{ head, want string }{{v1, v2For}, {v2, v2For}, {v6, v6For}} {
		for _, pieces := range [][]string{{c.head + "hello"}, {c.head, "hello"}, {c.head[:5], c.head[5:14], c.head[14:] + "he", "llo"}} {
			conn := dial(t, addr)
			for _, p := range pieces {
				io.WriteString(conn, p)
			}
			conn.CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || string(got) != c.want+"hello" {
				t.Errorf("%q: %q, %v, want %q", pieces, got, err, c.want)
			}
		}
	}
}

// A header that says nothing of a client, as for a check, leaves the address as it is.
func TestAcceptProxyOfNobody(t *testing.T) {
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "-check", "0")
	for _, head := range []string{"PROXY UNKNOWN\r\n", signature + "\x20\x00\x00\x00"} {
		c := dial(t, addr)
		io.WriteString(c, head)
		line, err := bufio.NewReader(c).ReadString('\n')
		from, to := c.LocalAddr().(*net.TCPAddr).Port, c.RemoteAddr().(*net.TCPAddr).Port
		if want := fmt.Sprintf("2111 7f0000017f000001%04x%04x\n", from, to); err != nil || line != want {
			t.Errorf("%q: %q, %v, want %q", head, line, err, want)
		}
	}
}

// Without a header, or with one that is none, there is no connection to a backend.
func TestAcceptProxyWithoutHeader(t *testing.T) {
	addr, _ := start(t, "-to", newBackend(t, "x").Addr().String(), "-accept-proxy", "-check", "0")
	for _, said := range []string{"GET / HTTP/1.0\r\n\r\n", "PROXY TCP4 nobody\r\n", strings.Repeat("PROXY ", 50), signature + "\x31\x11\xff\xff"} {
		c := dial(t, addr)
		io.WriteString(c, said)
		if got, _ := io.ReadAll(c); len(got) != 0 { // the end, or a reset
			t.Errorf("%q gets %q", said, got)
		}
	}
}

// Of networks that are named, each connection has a header; of others none, and must not have one.
func TestAcceptProxyOfNetworks(t *testing.T) {
	backend := newBackend(t, "x").Addr().String()
	named, _ := start(t, "-to", backend, "-accept-proxy=127.0.0.0/8,::1", "-check", "0")
	others, _ := start(t, "-to", backend, "-accept-proxy=192.0.2.1,2001:db8::/32", "-check", "0")
	for addr, c := range map[string][2]string{named: {v1, "without\n"}, others: {"", v1}} {
		good, bad := dial(t, addr), dial(t, addr)
		io.WriteString(good, c[0])
		if line, err := bufio.NewReader(good).ReadString('\n'); line != "x\n" {
			t.Errorf("%q: %q, %v", c[0], line, err)
		}
		io.WriteString(bad, c[1])
		if got, _ := io.ReadAll(bad); bytes.Contains(got, []byte(strings.TrimSpace(c[1]))) {
			t.Errorf("%q: %q came back", c[1], got)
		}
	}
}

// The header comes before the handshake of TLS.
func TestAcceptProxyThenTLS(t *testing.T) {
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "-tls", "-check", "0")
	c := dial(t, addr)
	io.WriteString(c, v1)
	secret := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // the certificate is nobody's
	fmt.Fprintln(secret, "hello")
	r := bufio.NewReader(secret)
	for _, want := range []string{v2For, "hello\n"} {
		if line, err := r.ReadString('\n'); line != want {
			t.Errorf("%q, %v", line, err)
		}
	}
}

// A real HAProxy in front says who the client is, in both versions.
func TestBehindHAProxy(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it starts HAProxy; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "-check", "0")
	for _, send := range []string{"send-proxy", "send-proxy-v2"} {
		front := behindHAProxy(t, addr+" "+send)
		for i := range 20 {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}, Timeout: time.Minute}
			c, err := d.Dial("tcp", front)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			port := c.LocalAddr().(*net.TCPAddr).Port
			want := fmt.Sprintf("2111 7f0001%02x7f000001%04x", 1+i, port)
			io.WriteString(c, "hello\n")
			r := bufio.NewReader(c)
			line, err := r.ReadString('\n')
			if rest, err2 := r.ReadString('\n'); !strings.HasPrefix(line, want) || rest != "hello\n" {
				t.Errorf("%s: %q, %v, want %q; %q, %v", send, line, err, want, rest, err2)
			}
			c.Close()
		}
	}
}

// behindHAProxy is HAProxy in front of a server, with its options.
func behindHAProxy(t *testing.T, server string) (front string) {
	t.Helper()
	return haproxytest.Run(t, "  timeout connect 60s\n  timeout client 60s\n  timeout server 60s\n"+
		"listen f\n  bind "+haproxytest.Front+"\n  server s "+server+"\n")
}
