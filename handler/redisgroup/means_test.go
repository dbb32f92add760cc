//go:build unix

package redisgroup_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A tap counts the commands that are written to connections, by name.
type tap struct {
	mu   sync.Mutex
	seen map[string]int
}

type tapConn struct {
	net.Conn
	tap  *tap
	rest []byte
}

func (c *tapConn) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		name, n := wholeCommand(c.rest)
		if n == 0 {
			return c.Conn.Write(b)
		}
		c.rest = c.rest[n:]
		c.tap.mu.Lock()
		c.tap.seen[strings.ToLower(name)]++
		c.tap.mu.Unlock()
	}
}

// wholeCommand returns the name of the command that b begins with, and its length: 0 if it is not
// there yet.
func wholeCommand(b []byte) (name string, n int) {
	line := func() int {
		i := bytes.IndexByte(b[n:], '\n')
		if i < 0 {
			return -1
		}
		v, _ := strconv.Atoi(string(bytes.TrimRight(b[n+1:n+i], "\r")))
		n += i + 1
		return v
	}
	words := line()
	for i := range words {
		size := line()
		if size < 0 || n+size+2 > len(b) {
			return "", 0
		}
		if i == 0 {
			name = string(b[n : n+size])
		}
		n += size + 2
	}
	if words < 0 {
		return "", 0
	}
	return name, n
}

// A secured is a Redis that speaks TLS, with a user who has to say a password.
type secured struct {
	addr       string
	trust      *tls.Config
	user, word string
}

// securedMini is miniredis.
func securedMini(t *testing.T) secured {
	cert, trust := certificate(t)
	m, err := miniredis.RunTLS(&tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.RequireUserAuth("rooms", "SECRET")
	return secured{m.Addr(), trust, "rooms", "SECRET"}
}

// securedReal is a redis-server, with the user of docs/rooms.md.
func securedReal(t *testing.T) secured {
	redistest.Need(t)
	cert, trust := certificate(t)
	certFile, keyFile := testkit.CertificateFiles(t, cert)
	port := strconv.Itoa(testkit.FreePort(t))
	r := redistest.Start(t, "--tls-port", port, "--tls-auth-clients", "no", "--tls-cert-file", certFile, "--tls-key-file", keyFile)
	redistest.Restricted(t, r.Client(), "../../docs/rooms.md", "rooms")
	return secured{"127.0.0.1:" + port, trust, "rooms", "SECRET"}
}

func certificate(t *testing.T) (tls.Certificate, *tls.Config) {
	cert := testkit.Certificate("127.0.0.1")
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	return cert, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
}

// The user's client is used as it is. With a Dialer, TLS, a user of few rights, and RESP2 or 3, all
// works; and a hook of the client sees each command but go-redis' own: those of new connections, and
// of its PubSub, whose connections it sees dialed.
func TestHookSeesAll(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) secured{"miniredis": securedMini, "redis": securedReal} {
		t.Run(name, func(t *testing.T) {
			at := start(t)
			for _, protocol := range []int{2, 3} {
				at.test(t, protocol)
			}
		})
	}
}

func (at secured) test(t *testing.T, protocol int) {
	wire, hook := &tap{seen: make(map[string]int)}, &tracer{seen: make(map[string]int)}
	user := redis.NewClient(&redis.Options{
		Addr: at.addr, Username: at.user, Password: at.word, Protocol: protocol, ReadTimeout: testkit.Patience, DisableIdentity: true,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &tapConn{Conn: tls.Client(c, at.trust), tap: wire}, nil
		},
	})
	user.AddHook(hook)
	t.Cleanup(func() { user.Close() })
	one, two := startNode(t, user, settled()), startNode(t, user, settled())
	a, b := one.dial(), two.dial()
	for _, c := range []*client{a, b} {
		c.say("join red")
		c.wants("joined true")
	}
	meet(t, "red", a, b)
	a.say("bind ann")
	a.wants("bound")
	a.say("history blue 0")
	a.until("arrived")
	b.say("history blue 0")
	b.until("arrived")
	b.say("osay blue hello")
	a.until("hello")
	a.say("osay blue again")
	b.until("again")
	who(t, two, "blue", "ann")
	if err := one.hub.Claim(t.Context(), "name", "me"); err != nil {
		t.Error(err)
	}
	if _, ok := one.hub.Token("name", "me"); !ok {
		t.Error("the name has no token")
	}
	if err := one.hub.Release(t.Context(), "name", "me"); err != nil {
		t.Error(err)
	}
	one.stop()
	two.stop()
	hook.mu.Lock()
	defer hook.mu.Unlock()
	wire.mu.Lock()
	defer wire.mu.Unlock()
	for _, own := range []string{"hello", "auth", "client", "select", "subscribe", "unsubscribe", "ping"} {
		delete(wire.seen, own)
		delete(hook.seen, own)
	}
	if hook.dials.Load() == 0 || hook.seen["evalsha"] == 0 || hook.seen["publish"] == 0 || !maps.Equal(hook.seen, wire.seen) {
		t.Errorf("RESP%d: the hook saw %v and %d dials, of %v", protocol, hook.seen, hook.dials.Load(), wire.seen)
	}
}

// The Hub sends presence again if Redis refused it because its memory was full.
func TestRefusedPresenceIsToldAgain(t *testing.T) {
	r := redistest.Start(t)
	one, two := startNode(t, r.Client(), settled()), startNode(t, r.Client(), settled())
	stays, goes := one.dial(), one.dial()
	for user, c := range map[string]*client{"goes": goes, "stays": stays} {
		c.say("bind %s", user)
		c.wants("bound")
	}
	goes.say("history room 0")
	goes.until("arrived")
	who(t, two, "room", "goes")
	r.CLI("config", "set", "maxmemory", "1")
	stays.say("ojoin room")
	stays.until("joined true")
	goes.Close()
	testkit.Eventually(t, "it was refused", func() bool {
		one.mu.Lock()
		defer one.mu.Unlock()
		for _, err := range one.errs {
			if strings.Contains(err.Error(), "OOM") {
				return true
			}
		}
		return false
	})
	r.CLI("config", "set", "maxmemory", "0")
	who(t, two, "room", "stays")
}

// One who joins a room that has no entries while Redis is full joins it when Redis takes something.
func TestJoinOfAnEmptyRoomInAFullRedis(t *testing.T) {
	r := redistest.Start(t)
	n := startNode(t, r.Client(), settled())
	r.CLI("config", "set", "maxmemory", "1")
	c := n.dial()
	c.say("history room 0")
	testkit.Eventually(t, "Redis has refused it", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.errs) > 0
	})
	c.silent()
	r.CLI("config", "set", "maxmemory", "0")
	c.until("gap=false")
	c.say("osay room hello")
	c.until("hello")
}
