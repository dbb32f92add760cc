// Package clitest has the test that all example programs share: what they say of a wrong command
// line, and of an address that they cannot have.
package clitest

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A Program is an example's main without the process.
type Program func(ctx context.Context, args []string, out, errOut io.Writer) int

// Refuses wants of a program that each wrong command line ends it with code 2, and each address
// that it cannot have with code 1, and one line that begins with its name and says what is wrong.
// needed are the flags without which it does not start; addrs are those that are for addresses to
// listen on, with the scheme in front, such as "tcp://", or none.
func Refuses(t *testing.T, name string, run Program, needed []string, addrs map[string]string) {
	t.Helper()
	refuses := func(code int, says string, args ...string) {
		t.Helper()
		var out, errOut bytes.Buffer
		args = append(append([]string{}, needed...), args...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := run(ctx, args, &out, &errOut)
		if ctx.Err() != nil {
			t.Errorf("%q: it serves, and does not end with %q", args, says)
			return
		}
		line := errOut.String()
		if got != code || !strings.HasPrefix(line, name+": ") || strings.Count(line, "\n") != 1 || !strings.Contains(line, says) || out.Len() > 0 {
			t.Errorf("%q: code %d, %q, %q; want %d, %s", args, got, out.String(), line, code, says)
		}
	}
	refuses(2, "-nosuch", "-nosuch")
	refuses(2, "-addr", "-addr")
	refuses(2, "flags only", "more")
	for flag, scheme := range addrs {
		if scheme != "" {
			refuses(2, flag, flag, "127.0.0.1:0")
			refuses(2, flag, flag, "quic://127.0.0.1:0")
		}
		for _, bad := range []string{"127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:none", "::1:0"} {
			refuses(2, flag, flag, scheme+bad)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := ln.Addr().String()
		refuses(1, scheme+port+" is in use: ", flag, scheme+port)
		refuses(1, "cannot listen", flag, scheme+"192.0.2.1:0") // an address of nobody (RFC 5737)
	}
}
