package loop

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A connection's timers with n pending: one that is added and stopped, and a random one that is put
// off.
func BenchmarkConnTimer(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		r := newRig(b, &Server{}, HandlerFunc(echoAll))
		c, _, _ := r.connect()
		timers, f := make([]Timer, n), func() {}
		for i := range timers {
			timers[i] = c.AfterFunc(time.Minute+time.Duration(i%3_600_000)*time.Millisecond, f)
		}
		name := map[int]string{10_000: "10k", 1_000_000: "1M"}[n]
		b.Run("add+stop/"+name, func(b *testing.B) {
			r.claim()
			for b.Loop() {
				c.AfterFunc(30*time.Second, f).Stop()
			}
		})
		order := make([]uint32, 1<<20)
		for i := range order {
			order[i] = rand.Uint32N(uint32(n))
		}
		b.Run("reset/"+name, func(b *testing.B) {
			r.claim()
			i := 0
			for b.Loop() {
				timers[order[i&(1<<20-1)]].Reset(2 * time.Hour)
				i++
			}
		})
	}
}
