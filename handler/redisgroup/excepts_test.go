package redisgroup

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// Messages that never come back, as the subscription was lost meanwhile, do not pile up.
func TestExceptsOfLostMessages(t *testing.T) {
	r := &room{}
	long, soon := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for seq := range uint64(10 * maxExcepts) {
		r.except(&outgoing{seq: seq, deadline: long}, loop.Ref{})
	}
	if n := len(r.excepts); n > maxExcepts {
		t.Errorf("%d are kept", n)
	}
	for seq := range uint64(3 * maxExcepts) {
		r.except(&outgoing{seq: 1<<32 + seq, deadline: soon}, loop.Ref{})
	}
	for seq := range uint64(3 * maxExcepts) {
		if _, ok := r.excepts[1<<32+seq]; !ok {
			t.Fatalf("number %d is forgotten, and still on its way", seq)
		}
	}
}
