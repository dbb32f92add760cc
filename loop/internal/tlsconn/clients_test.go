package tlsconn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// testTime is the time for certificates, so that what is said of those that have expired is the
// same for everybody.
var testTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A meeting is a kind of client and a kind of server.
type meeting struct {
	name           string
	server, client *tls.Config
	twice          bool // they meet twice: the second time with a session
}

// Whatever a client of crypto/tls and its server agree on, or fall out over, a client and ours do,
// too: the model is crypto/tls' own server.
func TestAllKindsOfClients(t *testing.T) {
	meetings := slices.Concat(suites(t), curves(), protocols(), clientCertificates(t), serverCertificates(t), sessions(), hooks())
	for _, m := range meetings {
		t.Run(m.name, func(t *testing.T) {
			m.client.Time = func() time.Time { return testTime }
			m.server.Time = m.client.Time
			times := 1
			if m.twice {
				times = 2
			}
			var want, got []string
			for _, list := range []*[]string{&want, &got} {
				server, client := m.server.Clone(), m.client.Clone()
				if m.twice {
					client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
				}
				for range times {
					if list == &want {
						*list = append(*list, meetModel(t, server, client))
					} else {
						*list = append(*list, meetOurs(t, server, client))
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("ours:\n\t%s\ncrypto/tls:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
			if m.twice && !m.server.SessionTicketsDisabled && !strings.Contains(got[1], "resumed") {
				t.Errorf("not resumed: %s", got[1])
			}
			t.Log(strings.Join(got, "\n"))
		})
	}
}

// ask is what a client does.
func ask(c *tls.Conn) error {
	err := c.Handshake()
	if err == nil {
		_, err = c.Write([]byte("ping"))
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 4))
	}
	_ = c.CloseWrite()
	return err
}

// summary says how both ends saw it.
func summary(s tls.ConnectionState, server, client error) string {
	what := fmt.Sprintf("%s, %s, %v, alpn %q, name %q, %d certificates", tls.VersionName(s.Version),
		tls.CipherSuiteName(s.CipherSuite), s.CurveID, s.NegotiatedProtocol, s.ServerName, len(s.PeerCertificates))
	if s.HelloRetryRequest {
		what += ", hello retried"
	}
	if s.DidResume {
		what += ", resumed"
	}
	if server != nil {
		what = fmt.Sprintf("server: %s", strings.TrimPrefix(server.Error(), "TLS handshake: "))
	}
	if client != nil {
		what += fmt.Sprintf("; client: %v", client)
	}
	return what
}

// meetModel has a client meet crypto/tls.
func meetModel(t *testing.T, server, client *tls.Config) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var failed error
	var state tls.ConnectionState
	var wg sync.WaitGroup
	wg.Go(func() {
		raw, err := ln.Accept()
		if err != nil {
			failed = err
			return
		}
		defer raw.Close()
		c := tls.Server(raw, server)
		if failed = c.Handshake(); failed != nil {
			_ = raw.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, raw) // otherwise a reset could overtake the alert
			return
		}
		state = c.ConnectionState()
		_, _ = io.Copy(c, c)
		_ = c.Close()
	})
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.SetDeadline(time.Now().Add(time.Minute))
	asked := ask(tls.Client(raw, client))
	_ = raw.Close()
	wg.Wait()
	return summary(state, failed, asked)
}

// meetOurs has a client meet us: twice, if there are no sessions, the second time in single bytes.
func meetOurs(t *testing.T, server, client *tls.Config) (what string) {
	for _, cut := range []int{1 << 20, 1} {
		s := newRig(t, nil).serve(server)
		s.answer = echo
		c, _ := s.dial(client, cut)
		asked := ask(c)
		reason := s.end()
		var state tls.ConnectionState
		select {
		case <-s.opened:
			state, _ = s.conn.State()
			reason = nil
		default:
		}
		now := summary(state, reason, asked)
		if what != "" && what != now {
			t.Errorf("in single bytes: %s", now)
		}
		if what = now; client.ClientSessionCache != nil {
			break
		}
	}
	return what
}

func ownPair(t *testing.T, key crypto.Signer) tls.Certificate {
	t.Helper()
	return testkit.SelfSigned(key, testTime.Add(-time.Hour), testTime.Add(time.Hour), "test")
}

// with returns a configuration that is changed.
func with(cfg *tls.Config, change func(*tls.Config)) *tls.Config {
	change(cfg)
	return cfg
}

var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// suites are all that there are, in the versions that have them.
func suites(t *testing.T) (all []meeting) {
	certs := []tls.Certificate{certificate(), ownPair(t, rsaKey())}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		for _, version := range suite.SupportedVersions {
			all = append(all, meeting{
				name: tls.VersionName(version) + "/" + suite.Name,
				server: with(serverConfig(), func(c *tls.Config) {
					c.Certificates, c.CipherSuites = certs, []uint16{suite.ID}
					c.MinVersion, c.MaxVersion = version, version
				}),
				client: with(clientConfig(), func(c *tls.Config) {
					c.RootCAs.AddCert(certs[1].Leaf)
					c.CipherSuites = []uint16{suite.ID}
					c.MinVersion = tls.VersionTLS10
				}),
			})
		}
	}
	return all
}

// curves are all that there are; for some the server has the client say hello again.
func curves() (all []meeting) {
	for _, curve := range []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			all = append(all, meeting{
				name: fmt.Sprintf("%s/%v", tls.VersionName(version), curve),
				server: with(serverConfig(), func(c *tls.Config) {
					c.CurvePreferences, c.MaxVersion = []tls.CurveID{curve}, version
				}),
				client: with(clientConfig(), func(c *tls.Config) {
					c.CurvePreferences = []tls.CurveID{tls.X25519, curve}
				}),
			})
		}
	}
	return append(all, meeting{"no curve in common",
		with(serverConfig(), func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} }),
		with(clientConfig(), func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }), false})
}

// protocols are what ALPN can come to, and versions that do not meet.
func protocols() (all []meeting) {
	for _, tt := range []struct{ server, client string }{
		{"a b", "b a"}, {"a", ""}, {"", "a"}, {"a", "b"}, {"h2 http/1.1", "http/1.1"},
	} {
		all = append(all, meeting{
			name:   fmt.Sprintf("ALPN %s to %s", tt.client, tt.server),
			server: with(serverConfig(), func(c *tls.Config) { c.NextProtos = strings.Fields(tt.server) }),
			client: with(clientConfig(), func(c *tls.Config) { c.NextProtos = strings.Fields(tt.client) }),
		})
	}
	return append(all,
		meeting{"too old a client", serverConfig(), with(clientConfig(), func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		}), false},
		meeting{"too new a client", with(serverConfig(), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
			with(clientConfig(), func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }), false},
		meeting{"another name", serverConfig(), with(clientConfig(), func(c *tls.Config) { c.ServerName = "other.test" }), false},
	)
}

// clientCertificates are all ways to ask for one, and what may come then.
func clientCertificates(t *testing.T) (all []meeting) {
	expired := testkit.SelfSigned(nil, testTime.Add(-2*time.Hour), testTime.Add(-time.Hour), "test")
	good, unknown := ownPair(t, rsaKey()), ownPair(t, rsaKey())
	trusted := x509.NewCertPool()
	trusted.AddCert(good.Leaf)
	trusted.AddCert(expired.Leaf)
	for name, certs := range map[string][]tls.Certificate{
		"no": nil, "a good": {good}, "an unknown": {unknown}, "an expired": {expired},
	} {
		for auth := tls.NoClientCert; auth <= tls.RequireAndVerifyClientCert; auth++ {
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				all = append(all, meeting{
					name: fmt.Sprintf("%s/%v/%s certificate", tls.VersionName(version), auth, name),
					server: with(serverConfig(), func(c *tls.Config) {
						c.ClientAuth, c.ClientCAs, c.MaxVersion = auth, trusted, version
					}),
					// A client sends none that the server's list does not know, if it may choose.
					client: with(clientConfig(), func(c *tls.Config) {
						c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
							if len(certs) == 0 {
								return new(tls.Certificate), nil
							}
							return &certs[0], nil
						}
					}),
				})
			}
		}
	}
	return all
}

// serverCertificates are kinds of keys, and a chain of 40 KB.
func serverCertificates(t *testing.T) (all []meeting) {
	p384, err1 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, err2 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	long := ownPair(t, rsaKey())
	for len(long.Certificate) < 50 {
		long.Certificate = append(long.Certificate, long.Certificate[0])
	}
	for name, pair := range map[string]tls.Certificate{
		"RSA": ownPair(t, rsaKey()), "P-384": ownPair(t, p384), "Ed25519": ownPair(t, ed), "a long chain": long,
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			all = append(all, meeting{
				name: tls.VersionName(version) + "/" + name,
				server: with(serverConfig(), func(c *tls.Config) {
					c.Certificates, c.MaxVersion = []tls.Certificate{pair}, version
				}),
				client: with(clientConfig(), func(c *tls.Config) { c.RootCAs.AddCert(pair.Leaf) }),
			})
		}
	}
	return append(all, meeting{"a certificate that nobody trusts", serverConfig(),
		with(clientConfig(), func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), false})
}

// sessions are resumed.
func sessions() (all []meeting) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, change := range map[string]func(*tls.Config){
			"session":           func(*tls.Config) {},
			"no tickets":        func(c *tls.Config) { c.SessionTicketsDisabled = true },
			"with certificates": func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert },
			"own tickets": func(c *tls.Config) {
				c.WrapSession = func(cs tls.ConnectionState, s *tls.SessionState) ([]byte, error) { return c.EncryptTicket(cs, s) }
				c.UnwrapSession = func(b []byte, cs tls.ConnectionState) (*tls.SessionState, error) { return c.DecryptTicket(b, cs) }
			},
		} {
			all = append(all, meeting{tls.VersionName(version) + "/" + name, with(serverConfig(), func(c *tls.Config) {
				c.MaxVersion = version
				c.SetSessionTicketKeys([][32]byte{{1}})
				change(c)
			}), clientConfig(), true})
		}
	}
	return all
}

// hooks are functions of the server's.
func hooks() (all []meeting) {
	refuse := fmt.Errorf("refused by a hook")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for name, change := range map[string]func(*tls.Config){
			"GetCertificate": func(c *tls.Config) {
				c.Certificates = nil
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { p := certificate(); return &p, nil }
			},
			"GetCertificate refuses": func(c *tls.Config) {
				c.Certificates = nil
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, refuse }
			},
			"GetConfigForClient": func(c *tls.Config) {
				c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					own := serverConfig()
					own.NextProtos, own.MaxVersion = h.SupportedProtos, version
					return own, nil
				}
			},
			"GetConfigForClient refuses": func(c *tls.Config) {
				c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, refuse }
			},
			"VerifyConnection":         func(c *tls.Config) { c.VerifyConnection = func(tls.ConnectionState) error { return nil } },
			"VerifyConnection refuses": func(c *tls.Config) { c.VerifyConnection = func(tls.ConnectionState) error { return refuse } },
		} {
			all = append(all, meeting{tls.VersionName(version) + "/" + name,
				with(serverConfig(), func(c *tls.Config) { c.MaxVersion = version; change(c) }),
				with(clientConfig(), func(c *tls.Config) { c.NextProtos = []string{"x"} }), false})
		}
	}
	return all
}
