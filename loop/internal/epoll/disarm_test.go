//go:build linux && !386 && !s390x

package epoll

import (
	"fmt"
	"sync"
	"testing"
)

// A loop that is busy now and then, so that Go's poller hears of it, or not, misses nothing that comes
// while that changes: each peer sends the next message when the last has come back, in tens of
// thousands of rounds.
func TestNothingIsMissedWhileDisarmed(t *testing.T) {
	const peers, rounds = 4, 5000
	engines(t, 1, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for range peers {
			ours, theirs := r.dialled(t)
			wg.Go(func() {
				for i := range rounds {
					msg := fmt.Sprint(i)
					if _, err := theirs.Write([]byte(msg)); err != nil {
						t.Error(err)
						return
					}
					ours.hears(t, msg)
				}
			})
		}
		wg.Wait()
	})
}
