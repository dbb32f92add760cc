package owner

import (
	"sync"
	"testing"
)

func TestOthersAreFound(t *testing.T) {
	var o Owner
	o.Check("nobody's") // which is nobody's fault
	var found []string
	o.Claim(func(method string, id uint64) {
		if id == 0 || id == o.ID() {
			t.Errorf("%s: goroutine %d", method, id)
		}
		found = append(found, method)
	})
	o.Check("own")
	var all, checked sync.WaitGroup
	var one sync.Mutex
	all.Add(100)
	for range 100 {
		checked.Go(func() {
			all.Done()
			all.Wait() // so that no stack serves two of them: one that lies beside the owner's might serve all
			one.Lock()
			defer one.Unlock()
			o.Check("other's")
		})
	}
	checked.Wait()
	o.Check("own")
	// Whose stack lies beside the owner's is not found.
	if len(found) < 90 {
		t.Errorf("%d of 100 were found", len(found))
	}
	for _, method := range found {
		if method != "other's" {
			t.Errorf("%s was found", method)
		}
	}
}

// However deep the calls are, and wherever the stack has moved, the owner's own are never reported.
func TestOwnCallsAreNot(t *testing.T) {
	var o Owner
	o.Claim(func(method string, id uint64) { t.Errorf("%s by goroutine %d of %d", method, id, o.ID()) })
	var deep func(n int) int
	deep = func(n int) int {
		var frame [256]byte
		o.Check("deep")
		if n == 0 {
			return int(frame[0])
		}
		return deep(n-1) + int(frame[n%len(frame)])
	}
	depths := []int{0, 1, 10, 200, 3}
	if !EveryCall { // to look takes long on a deep stack
		depths = append(depths, 20_000, 0, 100)
	}
	for _, n := range depths {
		deep(n)
	}
}

func BenchmarkCheck(b *testing.B) {
	var o Owner
	o.Claim(func(string, uint64) {})
	for b.Loop() {
		o.Check("own")
	}
}
