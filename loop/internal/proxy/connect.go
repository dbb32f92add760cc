package proxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/proxy"
)

// maxAnswer is how many bytes of header a proxy may answer CONNECT with.
const maxAnswer = 64 << 10

// CheckURL returns what is wrong with the URL of a proxy.
func CheckURL(p *url.URL) error {
	switch {
	case p.Scheme != "http" && p.Scheme != "socks5" && p.Scheme != "socks5h":
		return fmt.Errorf("speaks %q: want http (CONNECT), or socks5", p.Scheme)
	case p.Hostname() == "":
		return errors.New("has no host")
	}
	return nil
}

// Address returns where the proxy is.
func Address(p *url.URL) string {
	port := cmp.Or(p.Port(), map[string]string{"http": "80"}[p.Scheme], "1080")
	return net.JoinHostPort(p.Hostname(), port)
}

// Target checks an address, whose port may be a name, and makes that a number. A host that would
// end a line of the request to the proxy, or a word of it, is refused: the rest would be headers
// that nobody meant to send.
func Target(address string) (string, error) {
	host, name, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return "", err
	case host == "":
		return "", errors.New("no host for the proxy to connect to")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", errors.New("a host with a space or a control character")
	}
	port, err := net.LookupPort("tcp", name)
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// Connect makes the proxy at the other end of nc connect to a target. It reads no byte that comes
// after the proxy's answer. With an error, and at the end of ctx, nc is closed.
func Connect(ctx context.Context, nc net.Conn, p *url.URL, target string) (err error) {
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = nc.Close(); close(cancelled) })
	if p.Scheme == "http" {
		err = connectHTTP(nc, p.User, target)
	} else {
		err = connectSOCKS(nc, p.User, target)
	}
	if !stop() {
		<-cancelled
		return ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return fmt.Errorf("proxy %s: %w", p.Host, err)
	}
	return nil
}

// connectHTTP speaks CONNECT.
func connectHTTP(nc net.Conn, user *url.Userinfo, address string) error {
	request := &http.Request{Method: http.MethodConnect, URL: new(url.URL), Host: address, Header: make(http.Header)}
	if user != nil {
		password, _ := user.Password()
		login := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+login)
	}
	if err := request.Write(nc); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: byteReader{nc}, N: maxAnswer}
	answer, err := http.ReadResponse(bufio.NewReader(limited), request)
	if err != nil && limited.N == 0 {
		return fmt.Errorf("CONNECT was answered with a header of more than %d bytes", maxAnswer)
	}
	if err != nil {
		return fmt.Errorf("no answer to CONNECT: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("CONNECT was answered with %.100q", answer.Status)
	}
	return nil
}

// A byteReader reads single bytes, so that a bufio.Reader has none left over.
type byteReader struct{ nc net.Conn }

func (r byteReader) Read(p []byte) (int, error) { return r.nc.Read(p[:min(1, len(p))]) }

// connectSOCKS speaks SOCKS5, RFC 1928, with the user's name and password of RFC 1929. It is the
// proxy that resolves names.
func connectSOCKS(nc net.Conn, user *url.Userinfo, address string) error {
	var auth *proxy.Auth
	if user != nil {
		password, _ := user.Password()
		auth = &proxy.Auth{User: user.Username(), Password: password}
	}
	d, err := proxy.SOCKS5("tcp", "", auth, connected{nc})
	if err == nil {
		_, err = d.Dial("tcp", address)
	}
	return err
}

// connected is a proxy.Dialer whose connection is there.
type connected struct{ nc net.Conn }

func (c connected) Dial(string, string) (net.Conn, error) { return c.nc, nil }
