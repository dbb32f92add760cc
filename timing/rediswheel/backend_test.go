package rediswheel

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// soak reports whether tests are to take as long as docs/delays.md says.
func soak() bool { return os.Getenv("LOOPWHEEL_SOAK") != "" }

// backends runs a test on all that a queue can be on: the embedded Redis always, real ones if
// LOOPWHEEL_SLOW is set.
func backends(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t).PatientClient()) })
	t.Run("cluster", func(t *testing.T) { test(t, redistest.StartCluster(t, 0).PatientClient()) })
}

// embedded returns a client of a miniredis without sockets, which works in a bubble of
// testing/synctest.
func embedded(t testing.TB) *redis.Client {
	_, client := embeddedServer(t)
	return client
}

func embeddedServer(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.NewMiniRedis()
	t.Cleanup(m.Close)
	client := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dialEmbedded(m) },
		Addr:                     "127.0.0.1:1", // not a name that would be looked up, which a bubble does not like
		PoolSize:                 50,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { client.Close() })
	return m, client
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

// replicated waits until a replica has all that its master has confirmed. WAIT says so only of what
// the one who asks has written.
func replicated(t testing.TB, master *redistest.Server) {
	t.Helper()
	all, err := strconv.ParseInt(master.Info("replication", "master_repl_offset"), 10, 64)
	must(t, err)
	testkit.Eventually(t, "a replica has it all", func() bool { // slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=0
		_, at, _ := strings.Cut(master.Info("replication", "slave0"), ",offset=")
		at, _, _ = strings.Cut(at, ",")
		n, err := strconv.ParseInt(at, 10, 64)
		return err == nil && n >= all
	})
}

// upTo is some time below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}
