package loop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// lossWays are ways in which a connection ends.
var lossWays = map[string]struct {
	end     func(srv *looptest.Server, p *looptest.Peer)
	byPeer  bool // what the peer has not taken it did not want: the reason says enough
	partial bool // something is lost also if the peer reads all
}{
	"Close":                    {end: onLoop((*loop.Conn).Close)},
	"Close, the peer resets":   {end: after((*loop.Conn).Close, (*looptest.Peer).Reset)},
	"Close, the peer closes":   {end: after((*loop.Conn).Close, (*looptest.Peer).Close)},
	"Close, the peer has died": {end: after((*loop.Conn).Close, (*looptest.Peer).Hangup)},
	"Close, a half-close":      {end: after((*loop.Conn).Close, (*looptest.Peer).CloseWrite)},
	"CloseWrite, Close":        {end: onLoop(func(c *loop.Conn) { c.CloseWrite(); c.Close() })},
	"CloseWrite, a half-close": {end: after((*loop.Conn).CloseWrite, (*looptest.Peer).CloseWrite)},
	"Writev, Close": {end: onLoop(func(c *loop.Conn) {
		_, _ = c.Writev(net.Buffers{make([]byte, 20_000), make([]byte, 20_000)})
		c.Close()
	})},
	"MoveTo, Close":              {end: moved((*loop.Conn).Close, nil)},
	"MoveTo, Close before":       {end: moved(nil, (*loop.Conn).Close)},
	"MoveTo, the drain":          {end: func(srv *looptest.Server, p *looptest.Peer) { moved(nil, nil)(srv, p); srv.Shutdown() }},
	"an idle timeout":            {end: onLoop(func(c *loop.Conn) { c.SetIdleTimeout(time.Second) })},
	"a slow frame":               {end: func(srv *looptest.Server, p *looptest.Peer) { p.Send("x"); srv.Sleep(time.Hour) }},
	"an error of OnMessage":      {end: func(_ *looptest.Server, p *looptest.Peer) { p.Send("x\n") }},
	"an error of the codec":      {end: func(_ *looptest.Server, p *looptest.Peer) { p.Send(strings.Repeat("x", 100_000)) }},
	"a panic":                    {end: onLoop(func(c *loop.Conn) { c.AfterFunc(0, func() { panic("on purpose") }) })},
	"the drain":                  {end: drained(func(*loop.Conn) {})},
	"the drain after CloseWrite": {end: drained((*loop.Conn).CloseWrite)},
	"the drain, busy":            {end: drained(func(c *loop.Conn) { c.SetBusy(true) })},
	"the drain, with a job": {end: drained(func(c *loop.Conn) {
		_ = loop.Offload(c, func(ctx context.Context) int { <-ctx.Done(); return 0 }, func(*loop.Conn, int) {})
	})},
	"Server.Close":    {end: func(srv *looptest.Server, _ *looptest.Peer) { _ = srv.Close() }},
	"StartTLS, Close": {end: onLoop(func(c *loop.Conn) { _ = c.StartTLS(serverTLS(), nil); c.Close() })},
	"a half-close":    {end: func(_ *looptest.Server, p *looptest.Peer) { p.CloseWrite() }},
	"the peer closes": {end: func(_ *looptest.Server, p *looptest.Peer) { p.Close() }, byPeer: true},
	"the peer resets": {end: func(_ *looptest.Server, p *looptest.Peer) { p.Reset() }, byPeer: true},
	"a slow consumer": {byPeer: true, partial: true, end: onLoop(func(c *loop.Conn) {
		for c.Send(make([]byte, 60_000)) == nil {
		}
	})},
}

func onLoop(f func(*loop.Conn)) func(*looptest.Server, *looptest.Peer) {
	return func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, f) }
}

func after(f func(*loop.Conn), then func(*looptest.Peer)) func(*looptest.Server, *looptest.Peer) {
	return func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, f); then(p) }
}

func drained(f func(*loop.Conn)) func(*looptest.Server, *looptest.Peer) {
	return func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, f); srv.Shutdown() }
}

func moved(then, before func(*loop.Conn)) func(*looptest.Server, *looptest.Peer) {
	return func(srv *looptest.Server, p *looptest.Peer) {
		tell(srv, p, func(c *loop.Conn) {
			_ = c.MoveTo(srv.Loops()[1-c.Loop().Index()], then)
			if before != nil {
				before(c)
			}
		})
	}
}

// However a connection ends, its reason and Stats.Cut say that output was lost if the peer has not
// got all, and do not if it has.
func TestLossIsSaidHoweverItEnds(t *testing.T) {
	for name := range lossWays {
		for _, overTLS := range []bool{false, true} {
			for _, room := range []int{0, 500, 1 << 20, reads} {
				t.Run(fmt.Sprintf("%s, TLS %v, room %d", name, overTLS, room), func(t *testing.T) { testLoss(t, name, overTLS, room) })
			}
		}
	}
}

const reads = -1 // the room of a peer that is not blocked

func testLoss(t *testing.T, name string, overTLS bool, room int) {
	way := lossWays[name]
	srv := &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Timeouts: loop.Timeouts{Frame: time.Second}, Drain: loop.Drain{Timeout: 20 * time.Second},
		Logger: zerolog.New(io.Discard), // panics are on purpose
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return errLife })
		}}
	if overTLS {
		srv.TLS = serverTLS()
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		if overTLS {
			p.StartTLS(clientTLS())
		}
		if room != reads {
			p.Block(room)
		}
		tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, 1000)) })
		way.end(srv, p)
		srv.Sleep(time.Hour)
		lost, cut := errors.Is(p.Reason(), loop.ErrOutputLost), srv.Stats().Cut
		if want := room != reads && !way.byPeer; !p.Ended() || lost != want || lost && cut != 1 {
			t.Errorf("ended %v with %v, %d cut; ErrOutputLost %v, want %v", p.Ended(), p.Reason(), cut, lost, want)
		}
		if n := len(p.Received()); room == reads && !way.partial && n < 1001 {
			t.Errorf("the peer has got %d bytes, want 1001", n)
		}
		_ = srv.Stop()
	})
}

// A close awaits each byte of a record, and none of close_notify, which a client that has all may
// leave unread. Neither depends on the size of close_notify, which varies with the cipher suite.
func TestCloseAwaitsTheLastRecord(t *testing.T) {
	for name, cipher := range map[string]struct {
		version, suite uint16
		cryptoTLS      bool
		record         int // size of a record with two bytes of data
	}{
		"TLS 1.3":               {version: tls.VersionTLS13, record: 5 + 2 + 1 + 16},
		"TLS 1.3 of crypto/tls": {version: tls.VersionTLS13, record: 5 + 2 + 1 + 16, cryptoTLS: true},
		"GCM":                   {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, false, 5 + 8 + 2 + 16},
		"ChaCha20":              {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, false, 5 + 2 + 16},
		"CBC":                   {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, false, 5 + 16 + 32},
	} {
		t.Run(name, func(t *testing.T) {
			for missing := range cipher.record + 1 {
				config := serverTLS()
				config.MaxVersion, config.CipherSuites = cipher.version, []uint16{cipher.suite}
				srv := &loop.Server{TLS: config, Codec: codec.Lines{}, Debug: loop.Debug{CryptoTLS: cipher.cryptoTLS}}
				bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
					p := srv.OpenTLS(nil)
					p.Block(1 << 20)
					tell(srv, p, func(c *loop.Conn) {
						_ = c.Send([]byte("x"))
						c.Close()
					})
					p.Ack(cipher.record - missing)
					srv.Sleep(time.Minute)
					if lost := errors.Is(p.Reason(), loop.ErrOutputLost); lost != (missing > 0) {
						t.Errorf("%d of %d bytes not acknowledged: ended %v with %v", missing, cipher.record, p.Ended(), p.Reason())
					}
				})
			}
		})
	}
}

// A close that begins after StartTLS awaits the plain text.
func TestCloseAwaitsPlainTextBeforeTLS(t *testing.T) {
	bubble(t, &loop.Server{Codec: codec.Lines{}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(1 << 20)
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send([]byte("220 ready"))
			if err := c.StartTLS(serverTLS(), nil); err != nil {
				t.Error(err)
			}
			c.Close()
		})
		srv.Sleep(time.Minute)
		if !errors.Is(p.Reason(), loop.ErrOutputLost) {
			t.Errorf("the plain text is not acknowledged: ended %v with %v", p.Ended(), p.Reason())
		}
	})
}
