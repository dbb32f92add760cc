// Package testkit has what the tests of all packages and modules here share. It imports only the
// standard library, so any package can use it. What needs a loop is in internal/rig.
package testkit

import (
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Patience is how long a test waits for what must happen. It is long, since it only costs time if
// the test fails, and a busy machine is slow.
const Patience = time.Minute

// Eventually polls cond until it holds, on the calling goroutine, and fails the test if it does not
// hold within Patience. what completes the sentence "after a minute, not yet: ...".
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	EventuallyIn(t, Patience, what, cond)
}

// EventuallyIn is Eventually with another limit, for what takes longer or must not take so long.
func EventuallyIn(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	const most = 10 * time.Millisecond
	pause := 50 * time.Microsecond
	for end := time.Now().Add(limit); !cond(); pause = min(2*pause, most) {
		if time.Now().After(end) {
			t.Fatalf("after %v, not yet: %s", limit, what)
		}
		time.Sleep(pause) // the only thing to do between two looks
	}
}

// Receive returns the next value of ch, or its zero value if ch is closed. It fails the test if
// neither comes within Patience. what names what is awaited.
func Receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	select {
	case v := <-ch:
		return v
	case <-timeout.C:
		t.Fatalf("after %v, not yet: %s", Patience, what)
		panic("unreachable")
	}
}

// Pass lets d of virtual time pass, and then waits until all other goroutines of the bubble are
// blocked. It panics outside a bubble of testing/synctest.
func Pass(d time.Duration) {
	time.Sleep(d) // virtual: no test waits for it
	synctest.Wait()
}

// Block keeps the calling goroutine for d of virtual time: it stands for the work of a callback that
// takes so long. It panics outside a bubble of testing/synctest, where it would be real time.
func Block(d time.Duration) {
	if time.Now().Year() >= 2026 { // a bubble's clock starts in 2000
		panic("testkit: Block outside a bubble of testing/synctest")
	}
	time.Sleep(d) // virtual: no test waits for it
}

// NeedSlow skips the test unless LOOPWHEEL_SLOW is set. why says what it takes: minutes, or much of
// the machine.
func NeedSlow(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skipf("%s; to run it set LOOPWHEEL_SLOW=1, as CI does", why)
	}
}
