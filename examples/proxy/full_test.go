package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A proxy that has as many connections as it may have, or that drains, cannot dial. That says
// nothing about its backends.
func TestFullProxyBlamesNoBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // touched by one loop
		p := newProxy(options{to: []string{"192.0.2.1:80"}, connect: time.Second, check: time.Second, drain: time.Minute}, zerolog.New(&log))
		server := p.server()
		server.Limits.MaxConns, server.NumLoops = 3, 1
		srv := looptest.Start(t, server)
		backend := srv.Backend("tcp", "192.0.2.1:80")
		srv.Sleep(1500 * time.Millisecond) // the first check has found nobody
		log.Reset()
		served := srv.Open()   // takes two places
		turnedUp := srv.Open() // takes the third
		srv.Sleep(2 * time.Second)
		if !p.backends[0].up.Load() || served.Closed() || !turnedUp.Closed() {
			t.Errorf("backend up: %v, %+v", p.backends[0].up.Load(), srv.Stats())
		}
		served.Close()
		for up := backend.Accept(); up != nil; up = backend.Accept() {
			up.Close()
		}
		if again := srv.Open(); again.Closed() {
			t.Error("refused, though there is room again")
		}
		srv.Shutdown()
		srv.Sleep(5 * time.Second) // it drains until half of a minute is over
		if strings.Contains(log.String(), "down") {
			t.Errorf("the log says\n%s", log.String())
		}
	})
}
