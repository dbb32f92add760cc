//go:build unix

package handover_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A process that is to end while the next one takes over, which stops at some step, ends within what
// docs/shutdown.md allows for that: Patience, and twice Timeout, besides the drain.
func TestEndWithANextOneThatStops(t *testing.T) {
	const timeout, patience = time.Second, 500 * time.Millisecond
	for name, stop := range map[string]func(b *handover.Successor){
		"before the rehearsal": func(*handover.Successor) {},
		"before batch 0":       func(b *handover.Successor) { b.Until(handover.Rehearse) },
		"before its answer":    func(b *handover.Successor) { b.Until(handover.Batch) },
		"before batch 1": func(b *handover.Successor) {
			b.Got(b.Until(handover.Batch))
		},
		"in batch 1": func(b *handover.Successor) {
			b.Got(b.Until(handover.Batch))
			b.Until(handover.Batch)
		},
		"before bye": func(b *handover.Successor) { b.Until(handover.Over) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: timeout, Patience: patience}
			a := lines("a")
			a.Logger = zerolog.Nop()
			var accepted atomic.Int32
			a.Accept = func(c *loop.Conn) loop.Handler {
				c.SetBusy(accepted.Add(1) == 1) // so that Patience passes, too
				return accept("a")(c)
			}
			a.Drain.Timeout = 100 * time.Millisecond
			end, ended := inCharge(t, a, cfg)
			for range 2 {
				c := dial(t, a)
				c.say("one\n")
				c.hears("a 1 one")
			}
			b := next(t, cfg.Path)
			stop(b)
			began := time.Now()
			end()
			<-ended // with a DrainError, or without
			if took, most := time.Since(began), patience+2*timeout+a.Drain.Timeout+time.Second/2; took > most {
				t.Errorf("the process ends after %v, want at most %v", took, most)
			} else {
				t.Logf("after %v", took)
			}
		})
	}
}
