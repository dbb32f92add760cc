package redisgroup

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Messages that never come back, as the subscription was lost meanwhile, do not pile up. Those that
// may still be on their way are kept.
func TestExceptsOfLostMessages(t *testing.T) {
	r := &room{hub: &Hub{cfg: Config{PublishTimeout: time.Hour}}}
	const each = 100
	for seq := range uint64(10 * each) {
		if seq%each == 0 {
			r.renewAt = time.Time{} // as if an hour had passed
		}
		r.except(seq, loop.Ref{})
	}
	if n := len(r.excepts[0]) + len(r.excepts[1]); n != 2*each {
		t.Errorf("%d are kept, want those of two hours", n)
	}
	for seq := uint64(8 * each); seq < 10*each; seq++ {
		r.unexcept(seq)
	}
	if n := len(r.excepts[0]) + len(r.excepts[1]); n != 0 {
		t.Errorf("%d are kept that have come back", n)
	}
}
