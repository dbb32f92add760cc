package websocket_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
)

func TestClientConfig(t *testing.T) {
	for field, cfg := range map[string]*websocket.Client{
		"MaxMessage -1": {MaxMessage: -1}, "MaxSend -1": {MaxSend: -1}, "MaxFrame -1": {MaxFrame: -1},
		"MaxHandshake -1": {MaxHandshake: -1}, "CompressMin -1": {CompressMin: -1}, "HandshakeTimeout -1ns": {HandshakeTimeout: -1},
		"HandshakeTimeout is 10ns: is the unit missing?": {HandshakeTimeout: 10},
		`Protocols "a b"`: {Protocols: []string{"ok", "a b"}}, `Protocols ""`: {Protocols: []string{""}},
		"Header: Host": {Header: http.Header{"host": {"x"}}}, "Header: Upgrade": {Header: http.Header{"Upgrade": {"x"}}},
		"Header: Sec-Websocket-Key":               {Header: http.Header{"Sec-WebSocket-Key": {"x"}}},
		"Header: Sec-Websocket-Protocol":          {Header: http.Header{"sec-websocket-protocol": {"x"}}},
		"Header: Content-Length":                  {Header: http.Header{"Content-Length": {"1"}}},
		`Header: "a b" is no name`:                {Header: http.Header{"a b": {"x"}}},
		`Header: "" is no name`:                   {Header: http.Header{"": {"x"}}},
		"Header: the value of X":                  {Header: http.Header{"X": {"ok", "a\r\nEvil: b"}}},
		`URL: the scheme ""`:                      {URL: " "},
		`URL: the scheme "https"`:                 {URL: "https://x"},
		"URL: no host":                            {URL: "ws:///path"},
		"URL: no host in it":                      {URL: "ws:opaque"},
		"URL: a user":                             {URL: "wss://ada:secret@x/"},
		"URL: a fragment":                         {URL: "wss://x/#top"},
		"URL: the host":                           {URL: "wss://bücher.example/"},
		"URL: its query":                          {URL: "wss://x/?a b"},
		"URL: there is no port 0":                 {URL: "wss://x:0/"},
		"URL: there is no port 65536":             {URL: "wss://x:65536/"},
		"URL: invalid port":                       {URL: "wss://ada:secret/"},
		"URL: net/url: invalid control":           {URL: "wss://x/\x7fsecret"},
		"URL: invalid URL escape":                 {URL: "wss://secret%zz"},
		"URL: missing ']' in host":                {URL: "wss://[::1/"},
		"URL: invalid character":                  {URL: "wss://a b/secret"},
		"URL: first path segment":                 {URL: "x:y:z"},
		"Protocols \"\\\"\" is no token":          {Protocols: []string{`"`}},
		"Header: Transfer-Encoding cannot be set": {Header: http.Header{"Transfer-Encoding": {"chunked"}}},
	} {
		t.Run(field, func(t *testing.T) {
			if cfg.URL == "" {
				cfg.URL = "ws://x"
			}
			err := cfg.Validate()
			if !errors.Is(err, codec.ErrConfig) || !strings.Contains(err.Error(), "websocket.Client."+field) && field != "URL: first path segment" {
				t.Errorf("%s: %v", field, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret@") {
				t.Errorf("%s: the error shows the password: %v", field, err)
			}
		})
	}
	if err := (&websocket.Client{}).Validate(); !errors.Is(err, codec.ErrConfig) || !strings.Contains(err.Error(), "websocket.Client.URL") {
		t.Errorf("without a URL: %v", err)
	}
	for _, cfg := range []*websocket.Client{
		{URL: "ws://x"}, {URL: "WSS://X:1/%zz?%zz"[:8]}, {URL: "ws://127.0.0.1:65535/?a=%20"},
		{URL: "wss://x", Header: http.Header{"Origin": {"https://x"}, "X": {"", "\tgrün"}}, Protocols: []string{"chat.v2+json"}},
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", cfg.URL, err)
		}
	}
	cfg := &websocket.Client{URL: "ws://x"}
	if _, _, err := cfg.Decode([]byte("x")); !errors.Is(err, websocket.ErrNoConn) {
		t.Errorf("Client.Decode: %v", err)
	}
	if _, err := cfg.AppendFrame(nil, nil); !errors.Is(err, websocket.ErrNoConn) {
		t.Errorf("Client.AppendFrame: %v", err)
	}
}

// What a Dialer needs is made of the URL.
func TestClientAddr(t *testing.T) {
	for url, want := range map[string][2]string{ // the address, and the name that a certificate must have
		"ws://example.com":             {"tcp://example.com:80"},
		"wss://example.com/x":          {"tcp://example.com:443", "example.com"},
		"ws://example.com:8080/?x":     {"tcp://example.com:8080"},
		"WSS://Example.com:/x":         {"tcp://Example.com:443", "Example.com"},
		"ws://127.0.0.1:1":             {"tcp://127.0.0.1:1"},
		"wss://[::1]":                  {"tcp://[::1]:443", "::1"},
		"wss://[fe80::1%25eth0]:8443/": {"tcp://[fe80::1%eth0]:8443", "fe80::1"},
		"http://example.com":           {"tcp://:0"},
	} {
		cfg := &websocket.Client{URL: url}
		name := ""
		if settings := cfg.TLS(); settings != nil {
			name = settings.ServerName
			if len(settings.NextProtos) != 1 || settings.NextProtos[0] != "http/1.1" || settings == cfg.TLS() {
				t.Errorf("%s: %+v", url, settings)
			}
		}
		if got := cfg.Addr(); got != want[0] || name != want[1] {
			t.Errorf("%s: %s, name %q, want %q", url, got, name, want)
		}
	}
}

// Dialing an invalid URL fails with an error about the URL, not about an address.
func TestClientBadURL(t *testing.T) {
	cfg := &websocket.Client{URL: "https://x"}
	_, err := dialOwn(t, dialOnly(t).Loops()[0], cfg, cfg.TLS())
	if !errors.Is(err, codec.ErrConfig) || !strings.Contains(err.Error(), `websocket.Client.URL: the scheme "https"`) {
		t.Errorf("%v", err)
	}
}
