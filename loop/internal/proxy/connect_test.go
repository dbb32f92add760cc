package proxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// A host goes into the header of CONNECT as it is, so none may bring a line of its own.
func TestProxyRefusesHostsThatBreakItsRequest(t *testing.T) {
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
		if _, err := Target(address); (err == nil) != good {
			t.Errorf("%q: error %v, want one: %t", address, err, !good)
		}
	}
}

// proxyAnswers is a proxy that takes everything and answers what it was made of.
type proxyAnswers struct {
	net.Conn
	answers io.Reader
}

func (p proxyAnswers) Read(b []byte) (int, error) { return p.answers.Read(b) }
func (proxyAnswers) Write(p []byte) (int, error)  { return len(p), nil }
func (proxyAnswers) Close() error                 { return nil }

// Each answer of a SOCKS proxy begins with the version, and another one than 5 is an error.
func TestSOCKSAnswersOfAnotherVersion(t *testing.T) {
	for answers, good := range map[string]bool{
		"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50": true,
		"\x04\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50": false,
		"\x05\x00\x04\x00\x00\x01\x7f\x00\x00\x01\x00\x50": false,
	} {
		err := connectSOCKS(proxyAnswers{answers: strings.NewReader(answers)}, nil, "example.com:80")
		if (err == nil) != good {
			t.Errorf("%q: error %v, want one: %t", answers, err, !good)
		}
	}
}

// A proxy whose answer has no end has answered too much: it has not ended.
func TestAnswerThatIsTooLong(t *testing.T) {
	answer := "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-More: of it\r\n", maxAnswer)
	err := connectHTTP(proxyAnswers{answers: strings.NewReader(answer)}, nil, "example.com:80")
	if want := "header of more than 65536 bytes"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	err = connectHTTP(proxyAnswers{answers: strings.NewReader(answer[:1000])}, nil, "example.com:80")
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an answer that ends early: got %v, want %v", err, io.ErrUnexpectedEOF)
	}
}
