package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// secureOptions are testOptions with -tls.
func secureOptions(t testing.TB) options {
	t.Helper()
	opt := testOptions()
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	opt.certs.Register(flags)
	if err := errors.Join(flags.Parse([]string{"-tls"}), opt.check()); err != nil {
		t.Fatal(err)
	}
	return opt
}

// The page, its WebSocket and lines, with a certificate made on the spot.
func TestTLS(t *testing.T) {
	srv, _ := serve(t, secureOptions(t))
	contains(t, welcome(srv), "page:  https://"+srv.Addrs()[0].String())
	trusting := &tls.Config{InsecureSkipVerify: true}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + srv.Addrs()[0].String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != page {
		t.Errorf("%d bytes, %v, want the page", len(body), err)
	}
	nc := dialLines(t, srv)
	dialer := ws.Dialer{TLSConfig: trusting, Timeout: 10 * time.Second}
	c, _, _, err := dialer.Dial(t.Context(), "wss://"+srv.Addrs()[0].String()+"/ws?nick=ann&room=lobby")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	nc.hears("has joined lobby") // somebody: from then on nc hears all
	if err := wsutil.WriteClientText(c, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	nc.hears("<ann> hello")
}
