package loop

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// maxProxyAnswer is how many bytes of header a proxy may answer CONNECT with.
const maxProxyAnswer = 64 << 10

// checkProxy reads Dialer.Proxy.
func (a *dialing) checkProxy() error {
	p := a.dialer.Proxy
	switch {
	case p == nil:
		return nil
	case a.network == "unix" || a.isUDP():
		return fmt.Errorf("loop: Dialer.Proxy is for tcp, not for %s", a.network)
	case p.Scheme != "http" && p.Scheme != "socks5" && p.Scheme != "socks5h":
		return fmt.Errorf("loop: Dialer.Proxy speaks %q: want http (CONNECT), or socks5", p.Scheme)
	case p.Hostname() == "":
		return errors.New("loop: Dialer.Proxy has no host")
	}
	if _, _, err := splitPort(a.address); err != nil {
		return fmt.Errorf("loop: Dialer.Dial %q: %w", a.addr, err)
	}
	return nil
}

// splitPort splits an address whose port may be a name. A host that would end a line of the request
// to the proxy, or a word of it, is refused: the rest would be headers that nobody meant to send.
func splitPort(address string) (host string, port int, err error) {
	host, name, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return "", 0, err
	case host == "":
		return "", 0, errors.New("no host for the proxy to connect to")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", 0, errors.New("a host with a space or a control character")
	}
	port, err = net.LookupPort("tcp", name)
	return host, port, err
}

// reach makes the connection that is dialled, through the proxy if there is one. It runs beside the
// loop.
func (a *dialing) reach(ctx context.Context, d net.Dialer) (net.Conn, error) {
	p, eng := a.dialer.Proxy, a.loop.server.engine
	if p == nil {
		return eng.Dial(ctx, d, a.network, a.address)
	}
	port := p.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[p.Scheme]
		if port == "" {
			port = "1080"
		}
	}
	nc, err := eng.Dial(ctx, d, a.network, net.JoinHostPort(p.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if _, ok := nc.(syscall.Conn); !ok {
		return nil, errors.Join(fmt.Errorf("loop: Dialer.Proxy needs real sockets: %w", errors.ErrUnsupported), nc.Close())
	}
	canceled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = nc.Close(); close(canceled) })
	err = through(nc, p, a.address)
	if !stop() {
		<-canceled
		return nil, ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, a.wrap(fmt.Errorf("proxy %s: %w", p.Host, err), dialAddr{a.network, a.address})
	}
	return nc, nil
}

// through has the proxy at the other end of nc connect to an address. It reads no byte that comes
// after the proxy's answer.
func through(nc net.Conn, p *url.URL, address string) error {
	host, port, err := splitPort(address)
	if err != nil {
		return err
	}
	if p.Scheme == "http" {
		return connectHTTP(nc, p.User, net.JoinHostPort(host, fmt.Sprint(port)))
	}
	return connectSOCKS(nc, p.User, host, port)
}

// connectHTTP speaks CONNECT.
func connectHTTP(nc io.ReadWriter, user *url.Userinfo, address string) error {
	request := "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n"
	if user != nil {
		password, _ := user.Password()
		request += "Proxy-Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(nc, request+"\r\n"); err != nil {
		return err
	}
	var answer []byte
	for b := make([]byte, 1); !bytes.HasSuffix(answer, []byte("\r\n\r\n")); answer = append(answer, b...) {
		if len(answer) == maxProxyAnswer {
			return errors.New("the header of its answer does not end")
		}
		if _, err := io.ReadFull(nc, b); err != nil {
			return fmt.Errorf("no answer to CONNECT: %w", err)
		}
	}
	line, _, _ := bytes.Cut(answer, []byte("\r\n"))
	version, status, _ := bytes.Cut(line, []byte(" "))
	if !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return fmt.Errorf("%.20q is no answer of HTTP/1", line)
	}
	if len(status) == 0 || status[0] != '2' {
		return fmt.Errorf("CONNECT was answered with %.100q", status)
	}
	return nil
}

// socksFailures are the replies of a SOCKS proxy: RFC 1928, 6.
var socksFailures = []string{"", "general failure", "not allowed by its rules", "network unreachable", "host unreachable",
	"connection refused", "TTL expired", "command not supported", "address type not supported"}

// connectSOCKS speaks SOCKS5, RFC 1928, with the user's name and password of RFC 1929. It is the
// proxy that resolves names.
func connectSOCKS(nc io.ReadWriter, user *url.Userinfo, host string, port int) error {
	const none, byPassword = 0, 2
	hello := []byte{5, 1, none}
	if user != nil {
		hello = []byte{5, 2, none, byPassword}
	}
	var answer [4]byte
	if err := exchange(nc, hello, answer[:2]); err != nil {
		return err
	}
	switch {
	case answer[0] != 5:
		return fmt.Errorf("it speaks SOCKS version %d, not 5", answer[0])
	case answer[1] == byPassword && user != nil:
		if err := logInSOCKS(nc, user); err != nil {
			return err
		}
	case answer[1] != none:
		return errors.New("it wants another way to log in")
	}
	request := []byte{5, 1, 0}
	if ip, err := netip.ParseAddr(host); err != nil {
		if len(host) > 255 {
			return errors.New("a name of more than 255 bytes")
		}
		request = append(append(request, 3, byte(len(host))), host...)
	} else if ip = ip.Unmap(); ip.Is4() {
		request = append(append(request, 1), ip.AsSlice()...)
	} else {
		request = append(append(request, 4), ip.AsSlice()...)
	}
	if err := exchange(nc, binary.BigEndian.AppendUint16(request, uint16(port)), answer[:]); err != nil {
		return err
	}
	if answer[0] != 5 {
		return fmt.Errorf("it answers in SOCKS version %d, not 5", answer[0])
	}
	if code := int(answer[1]); code > 0 && code < len(socksFailures) {
		return errors.New(socksFailures[code])
	} else if code > 0 {
		return fmt.Errorf("failure %d", code)
	}
	return skipBound(nc, answer[3])
}

// logInSOCKS is RFC 1929.
func logInSOCKS(nc io.ReadWriter, user *url.Userinfo) error {
	name := user.Username()
	password, _ := user.Password()
	if len(name) > 255 || len(password) > 255 {
		return errors.New("a user's name, or a password, of more than 255 bytes")
	}
	request := append(append([]byte{1, byte(len(name))}, name...), byte(len(password)))
	var answer [2]byte
	if err := exchange(nc, append(request, password...), answer[:]); err != nil {
		return err
	}
	if answer[1] != 0 {
		return errors.New("the user's name or the password is wrong")
	}
	return nil
}

// skipBound reads the address that the proxy connects from.
func skipBound(nc io.Reader, kind byte) error {
	size := map[byte]int{1: 4, 4: 16}[kind]
	if kind == 3 {
		var n [1]byte
		if _, err := io.ReadFull(nc, n[:]); err != nil {
			return err
		}
		size = int(n[0])
	} else if size == 0 {
		return fmt.Errorf("an address of kind %d", kind)
	}
	_, err := io.ReadFull(nc, make([]byte, size+2))
	return err
}

// exchange writes a request and reads an answer of SOCKS.
func exchange(nc io.ReadWriter, request, answer []byte) error {
	if _, err := nc.Write(request); err != nil {
		return err
	}
	if _, err := io.ReadFull(nc, answer); err != nil {
		return fmt.Errorf("no answer of SOCKS: %w", err)
	}
	return nil
}
