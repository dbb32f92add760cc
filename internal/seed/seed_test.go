package seed_test

import (
	"fmt"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// recorded is a test that tells what becomes of it.
type recorded struct {
	testing.TB
	name    string
	failed  bool
	cleanup func()
	said    string
}

func (r *recorded) Helper()          {}
func (r *recorded) Name() string     { return r.name }
func (r *recorded) Failed() bool     { return r.failed }
func (r *recorded) Cleanup(f func()) { r.cleanup = f }

func (r *recorded) Logf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func (r *recorded) Fatalf(format string, args ...any) {
	r.said += fmt.Sprintf(format, args...)
	panic(r)
}

// picked returns what a test gets with LOOPWHEEL_SEED set, and what it says in the end.
func picked(t *testing.T, set string, failed bool) (got uint64, said string) {
	t.Setenv("LOOPWHEEL_SEED", set)
	t.Setenv("LOOPWHEEL_SLOW", "")
	r := &recorded{TB: t, name: "TestSomething/4711", failed: failed}
	defer func() {
		if recover() == r {
			said = r.said
		}
	}()
	got = seed.Pick(r, 17)
	r.cleanup()
	return got, r.said
}

func TestPick(t *testing.T) {
	if got, said := picked(t, "", false); got != 17 || said != "" {
		t.Errorf("got %d and %q", got, said)
	}
	if got, said := picked(t, "18446744073709551615", false); got != 1<<64-1 || said != "" {
		t.Errorf("got %d and %q", got, said)
	}
	one, _ := picked(t, "random", false)
	if other, _ := picked(t, "random", false); one == other {
		t.Errorf("got %d twice", one)
	}
}

// Who reads that a test has failed reads how to see it again.
func TestPickSaysHowToRunItAgain(t *testing.T) {
	const command = "LOOPWHEEL_SEED=23 go test -run '^TestSomething$' github.com/loopwheel/loopwheel/internal/seed"
	if _, said := picked(t, "23", true); said != "the seed was 23; to run it again: "+command {
		t.Errorf("said %q", said)
	}
}

func TestPickOfNonsense(t *testing.T) {
	const want = `LOOPWHEEL_SEED must be a number or random: strconv.ParseUint: parsing "often": invalid syntax`
	if _, said := picked(t, "often", false); said != want {
		t.Errorf("said %q", said)
	}
}
