package redistest

import (
	"bytes"
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Embedded returns a miniredis without sockets, which works in a bubble of testing/synctest, and a
// client of it.
func Embedded(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.NewMiniRedis()
	t.Cleanup(m.Close)
	return m, EmbeddedClient(t, m)
}

// EmbeddedClient returns one more client of an embedded miniredis, as of another process.
func EmbeddedClient(t testing.TB, m *miniredis.Miniredis) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dialEmbedded(m) },
		Addr:                     "127.0.0.1:1", // not a name that would be looked up, which a bubble does not like
		PoolSize:                 50,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// dialEmbedded connects as by a socket, which takes what is written at once. miniredis' own
// connections, by net.Pipe, do not: it answers the first commands of a pipeline while the client
// still writes the rest, and a subscriber that does not read what is published holds up all others,
// with a lock, for which no bubble of testing/synctest lets time pass.
func dialEmbedded(m *miniredis.Miniredis) (net.Conn, error) {
	server, err := m.Dial()
	if err != nil {
		return nil, err
	}
	client, between := net.Pipe()
	pump(between, server)
	pump(server, between)
	return client, nil
}

// pump writes to one connection what it reads from the other, until one of them is closed.
func pump(to, from net.Conn) {
	pieces := make(chan []byte, 1<<14)
	go func() {
		defer close(pieces)
		buf := make([]byte, 16<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			pieces <- bytes.Clone(buf[:n])
		}
	}()
	go func() {
		for p := range pieces {
			if _, err := to.Write(p); err != nil {
				break
			}
		}
		_ = to.Close()
		_ = from.Close()
		for range pieces { // the other must not wait
			continue
		}
	}()
}
