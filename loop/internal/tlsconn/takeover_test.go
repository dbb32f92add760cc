package tlsconn

import (
	"bytes"
	"crypto/tls"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// Which connections crypto/tls keeps. All of them echo, and end on both sides.
func TestTakesOver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client bool // ours is the client
		change func(server, client *tls.Config)
		keeps  bool
	}{
		{"server", false, func(_, _ *tls.Config) {}, false},
		{"server of TLS 1.2", false, func(server, _ *tls.Config) { server.MaxVersion = tls.VersionTLS12 }, true},
		{"server with a client certificate", false, func(server, client *tls.Config) {
			server.ClientAuth, client.Certificates = tls.RequireAnyClientCert, server.Certificates
		}, false},
		{"server without tickets", false, func(server, _ *tls.Config) { server.SessionTicketsDisabled = true }, false},
		{"server with a ticket of 40 KB", false, func(server, client *tls.Config) {
			server.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return pattern(40_000), nil }
			client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}, false},
		{"GetConfigForClient", false, func(server, _ *tls.Config) {
			own := server.Clone()
			server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
		}, false},
		{"GetConfigForClient to TLS 1.2", false, func(server, _ *tls.Config) {
			own := server.Clone()
			own.MaxVersion = tls.VersionTLS12
			server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
		}, true},
		{"client", true, func(_, _ *tls.Config) {}, false},
		{"client of TLS 1.2", true, func(server, _ *tls.Config) { server.MaxVersion = tls.VersionTLS12 }, true},
		{"client with a certificate", true, func(server, client *tls.Config) {
			server.ClientAuth, client.Certificates = tls.RequireAnyClientCert, server.Certificates
		}, false},
		{"client with a cache of sessions", true, func(_, client *tls.Config) {
			client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}, true},
	} {
		for _, cryptoTLS := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", CryptoTLS"}[cryptoTLS], func(t *testing.T) {
				server, client := serverConfig(), clientConfig()
				tt.change(server, client)
				r := newRig(t, func(cfg *SharedConfig) { cfg.CryptoTLS = cryptoTLS })
				s := r.start(Config{TLS: map[bool]*tls.Config{false: server, true: client}[tt.client], Client: tt.client})
				s.answer = echo
				peer := tls.Client(&wire{sock: s.sock, cut: 1 << 20}, client)
				if tt.client {
					peer = tls.Server(&wire{sock: s.sock, cut: 1 << 20}, server)
				}
				want := pattern(100_000)
				if _, err := peer.Write(want); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(want))
				if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the echo of %d bytes is not what was sent, or %v", len(want), err)
				}
				if got, want := s.conn.tls != nil, tt.keeps || cryptoTLS || testhook.CryptoTLS(); got != want {
					t.Errorf("crypto/tls keeps it: %v, want %v", got, want)
				}
				theirs, ours := peer.ConnectionState(), tls.ConnectionState{}
				r.do(func() { ours, _ = s.conn.State() })
				a, err1 := ours.ExportKeyingMaterial("test", nil, 16)
				b, err2 := theirs.ExportKeyingMaterial("test", nil, 16)
				if !bytes.Equal(a, b) || err1 != nil || err2 != nil || len(ours.PeerCertificates) != peerCertificates(tt.client, client) {
					t.Errorf("the states differ: %x and %x, errors %v and %v, %d certificates", a, b, err1, err2, len(ours.PeerCertificates))
				}
				_ = peer.CloseWrite()
				if err := s.end(); err != io.EOF {
					t.Errorf("ended with %v, want %v", err, io.EOF)
				}
				if n, err := peer.Read(got); err != io.EOF {
					t.Errorf("the peer reads %d bytes, %v, want %v", n, err, io.EOF)
				}
			})
		}
	}
}

// peerCertificates returns how many certificates our peer has shown.
func peerCertificates(ourClient bool, client *tls.Config) int {
	if ourClient || client.Certificates != nil {
		return 1
	}
	return 0
}

// lines are a KeyLogWriter.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

// The user's key log, that of the tls.Config that holds in the end, gets all lines.
func TestKeyLogOfUser(t *testing.T) {
	versions(t, func(t *testing.T, cfg *tls.Config) {
		for _, hook := range []bool{false, true} {
			var got, want, none lines
			server, client := cfg.Clone(), clientConfig()
			server.KeyLogWriter, client.KeyLogWriter = &got, &want
			if hook {
				own := server.Clone()
				server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
				server.KeyLogWriter = &none
			}
			s := newRig(t, nil).serve(server)
			c, _ := s.dial(client, 1<<20)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			<-s.opened
			slices.Sort(got.all)
			slices.Sort(want.all)
			if !slices.Equal(got.all, want.all) || len(want.all) == 0 || len(none.all) > 0 {
				t.Errorf("hook %v: the log has %d lines, want the client's %d; %d that do not belong there", hook, len(got.all), len(want.all), len(none.all))
			}
		}
	})
}

// Connections share ticket keys, however these were set, and across their rotation.
func TestSharedTicketKeys(t *testing.T) {
	start := time.Now()
	returned := func(change func(*tls.Config)) func(*tls.Config) {
		return func(server *tls.Config) {
			keep := server.Clone()
			change(keep)
			server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				keep.Time = server.Time
				return keep, nil
			}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(server *tls.Config)
		rotate func(server *tls.Config) // before the third connection; nil: a day passes
		lost   bool                     // tickets of before
	}{
		{"own", func(*tls.Config) {}, nil, false},
		{"set", func(server *tls.Config) { server.SetSessionTicketKeys([][32]byte{{1}}) }, func(server *tls.Config) {
			server.SetSessionTicketKeys([][32]byte{{2}, {1}})
		}, false},
		{"set anew", func(server *tls.Config) { server.SetSessionTicketKeys([][32]byte{{1}}) }, func(server *tls.Config) {
			server.SetSessionTicketKeys([][32]byte{{2}})
		}, true},
		{"GetConfigForClient", returned(func(*tls.Config) {}), nil, false},
		{"GetConfigForClient with keys", returned(func(c *tls.Config) { c.SetSessionTicketKeys([][32]byte{{3}}) }), func(server *tls.Config) {
			server.SetSessionTicketKeys([][32]byte{{4}}) // which is not what counts
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var now time.Time
			server, client := serverConfig(), clientConfig()
			server.Time = func() time.Time { return now }
			tt.change(server)
			cache := tls.NewLRUClientSessionCache(4)
			client.ClientSessionCache, client.Time = cache, server.Time
			now = start
			for i := range 5 {
				if i == 2 {
					now = now.Add(25 * time.Hour)
					if tt.rotate != nil {
						tt.rotate(server)
					}
				}
				s := newRig(t, nil).serve(server)
				s.answer = echo
				c, _ := s.dial(client, 1<<20)
				_, _ = c.Write([]byte("x"))
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if got, want := c.ConnectionState().DidResume, i > 0 && (i != 2 || !tt.lost); got != want {
					t.Errorf("connection %d: resumed %v, want %v", i, got, want)
				}
			}
		})
	}
}

// Nothing of the secrets is left when a connection has closed.
func TestSecretsAreErased(t *testing.T) {
	for _, hard := range []bool{false, true} {
		s := newRig(t, nil).serve(serverConfig())
		client, _ := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		if s.conn.records == nil {
			t.Skip("crypto/tls keeps it")
		}
		s.rig.do(func() { closeBy(s.conn, hard) })
		if !reflect.ValueOf(s.conn.records).Elem().IsZero() {
			t.Errorf("closed hard %v: something is left", hard)
		}
	}
}

// Plaintext gets into no buffer that others use: neither the engine's nor one of the pool's.
func TestPlaintextLeavesNoTrace(t *testing.T) {
	const text = "nobody but the sink sees this"
	s := newRig(t, nil).serve(serverConfig())
	client, w := s.dial(clientConfig(), 1<<20)
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	<-s.opened
	fetch := w.hold()
	for range 2 {
		_, _ = client.Write([]byte(text))
	}
	records := fetch()
	whole, first, second := records[:len(records)/2], records[len(records)/2:len(records)-9], records[len(records)-9:]
	var held, out []byte
	s.rig.do(func() {
		s.sock.deliver(whole)
		s.sock.deliver(first)
		held = s.conn.in[:cap(s.conn.in)]
		s.sock.deliver(second)
		s.sock.room = 0
		s.send([]byte(text))
		out = s.conn.out[:cap(s.conn.out)]
	})
	if got := s.plain(); got != text+text {
		t.Errorf("plaintext %q, want it twice", got)
	}
	for name, b := range map[string][]byte{"the engine's": records, "the input's": held, "the output's": out} {
		if len(b) == 0 || strings.Contains(string(b), text[1:]) {
			t.Errorf("%s buffer of %d bytes has the plaintext, or is none", name, len(b))
		}
	}
}

// A detached connection returns bytes that were read but not decrypted, and an EOF that was already
// reported.
func TestDetach(t *testing.T) {
	for _, ended := range []bool{false, true} {
		s := newRig(t, nil).serve(serverConfig())
		s.linger = true
		client, w := s.dial(clientConfig(), 1<<20)
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		<-s.opened
		if s.conn.records == nil {
			t.Skip("crypto/tls keeps it")
		}
		fetch := w.hold()
		_, _ = client.Write([]byte("rest"))
		_ = client.CloseWrite()
		stream, want := fetch(), "rest"
		if ended {
			s.sock.feed(stream, len(stream))
			if err := s.end(); err != io.EOF {
				t.Fatalf("ended with %v, want %v", err, io.EOF)
			}
			want = ""
		} else {
			s.sock.feed(stream[:10], 10)
			s.sock.ahead = stream[10:]
		}
		s.rig.do(func() {
			nc, _, err := s.conn.Detach()
			if err != nil {
				t.Errorf("ended %v: %v", ended, err)
				return
			}
			if got, err := io.ReadAll(nc); string(got) != want || err != nil {
				t.Errorf("ended %v: %q, error %v, want %q", ended, got, err, want)
			}
		})
	}
}

// A handshake without these hooks gets a context that never ends. A hook that Go adds, and that
// gets the context, has to join them in shakeHands.
func TestHooksAreKnown(t *testing.T) {
	known := strings.Fields("Rand Time GetCertificate GetClientCertificate GetConfigForClient GetEncryptedClientHelloKeys " +
		"VerifyPeerCertificate VerifyConnection EncryptedClientHelloRejectionVerify UnwrapSession WrapSession")
	for field := range reflect.TypeFor[tls.Config]().Fields() {
		if field.IsExported() && field.Type.Kind() == reflect.Func && !slices.Contains(known, field.Name) {
			t.Errorf("%s is new", field.Name)
		}
	}
}

// BenchmarkHandshake is a handshake, with crypto/tls as the client, and one message.
func BenchmarkHandshake(b *testing.B) {
	for _, cryptoTLS := range []bool{false, true} {
		b.Run(map[bool]string{false: "records of ours", true: "crypto/tls"}[cryptoTLS], func(b *testing.B) {
			r := newRig(b, func(cfg *SharedConfig) { cfg.CryptoTLS = cryptoTLS })
			server, client := serverConfig(), clientConfig()
			b.ReportAllocs()
			for b.Loop() {
				s := r.serve(server)
				s.answer = echo
				c, _ := s.dial(client, 1<<20)
				_, err := c.Write([]byte("x"))
				if err == nil {
					_, err = io.ReadFull(c, make([]byte, 1))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
