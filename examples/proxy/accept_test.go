package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// headerBackend is a backend that says the PROXY header that it got, version 2, and then all else.
func headerBackend(t *testing.T) string {
	t.Helper()
	return serveTCP(t, func(c net.Conn) {
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
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "0.0.0.0/0", "-check", "0")
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
	addr, _ := start(t, "-to", headerBackend(t), "-send-proxy", "-accept-proxy", "0.0.0.0/0", "-check", "0")
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
	addr, _ := start(t, "-to", newBackend(t, "x").Addr().String(), "-accept-proxy", "0.0.0.0/0", "-check", "0")
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
	named, _ := start(t, "-to", backend, "-accept-proxy=127.0.0.0/8,::1/128", "-check", "0")
	others, _ := start(t, "-to", backend, "-accept-proxy=192.0.2.1/32,2001:db8::/32", "-check", "0")
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
