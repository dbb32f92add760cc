package loop

import (
	"net/url"
	"testing"
)

// A host goes into the header of CONNECT as it is, so none may bring a line of its own.
func TestProxyRefusesHostsThatBreakItsRequest(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}
	for address, good := range map[string]bool{
		"example.com:80":              true,
		"[2001:db8::1]:443":           true,
		"example.com\r\nX-Evil: 1:80": false,
		"[a\r\nX-Evil: 1]:80":         false,
		"example.com HTTP/1.1:80":     false,
		"a\x00b:80":                   false,
		"a\x7fb:80":                   false,
		":80":                         false,
	} {
		a := &dialing{network: "tcp", address: address, addr: "tcp://" + address, dialer: Dialer{Proxy: proxy}}
		if err := a.checkProxy(); (err == nil) != good {
			t.Errorf("%q: error %v, want one: %t", address, err, !good)
		}
	}
}
