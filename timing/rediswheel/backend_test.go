package rediswheel

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

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
	return redistest.Embedded(t)
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
