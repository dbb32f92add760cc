package redisgroup_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/redistest"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Four thousand users who join a room at once, with its last ten messages, take three seconds of
// Redis' processor at most, and twice as many about twice as much. All of them arrive.
func TestCrowd(t *testing.T) {
	took := make(map[int]time.Duration)
	for _, users := range []int{1000, 2000, 4000} {
		t.Run(fmt.Sprint(users), func(t *testing.T) {
			testkit.NeedFiles(t, 3*users)
			s := redistest.Start(t)
			cfg := settled()
			cfg.Form = func(redisgroup.Entry) []byte { return nil }
			n := startNode(t, s.PatientClient(), cfg)
			before := cpu(t, s)
			clients := make([]*client, users)
			for i := range clients {
				clients[i] = n.dial()
				clients[i].say("bind user%d", i)
				clients[i].say("history red 10")
			}
			for _, c := range clients {
				if got := c.until("arrived"); !strings.Contains(got[len(got)-1], "gap=false") {
					t.Fatalf("heard %q", got)
				}
			}
			red, _ := n.hub.Ordered("red")
			testkit.Eventually(t, "Redis knows all of them", func() bool {
				n, err := red.Count(t.Context())
				return err == nil && n == users
			})
			took[users] = cpu(t, s) - before
		})
	}
	t.Log(took)
	if got := took[4000]; got > 3*time.Second || got > 5*took[1000]+time.Second/2 {
		t.Errorf("4,000 users took %v of Redis, and 1,000 took %v", got, took[1000])
	}
}

// cpu returns how long a server has computed.
func cpu(t *testing.T, s *redistest.Server) (sum time.Duration) {
	for _, kind := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(s.Info("cpu", kind), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
