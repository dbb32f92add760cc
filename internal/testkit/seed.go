package testkit

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

const seedEnv = "LOOPWHEEL_SEED"

// Seed returns the seed of a test of random things: fixed, so that a test that has passed passes
// again. LOOPWHEEL_SEED overrides it with a number, or with "random" by another one each time. If
// the test fails, its log says which seed it was and how to run it again.
func Seed(t testing.TB, fixed uint64) uint64 {
	t.Helper()
	seed, err := pickSeed(os.Getenv(seedEnv), fixed)
	if err != nil {
		t.Fatalf("%s must be a number or random: %v", seedEnv, err)
	}
	command := runAgain(t.Name(), callingPackage(), seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d; to run it again: %s", seed, command)
		}
	})
	return seed
}

func pickSeed(set string, fixed uint64) (uint64, error) {
	switch set {
	case "":
		return fixed, nil
	case "random":
		return rand.Uint64(), nil
	}
	return strconv.ParseUint(set, 10, 64)
}

// runAgain is the command that runs a test again. It names no subtest, as that may have the seed in
// its name.
func runAgain(name, pkg string, seed uint64) string {
	name, _, _ = strings.Cut(name, "/")
	command := seedEnv + "=" + strconv.FormatUint(seed, 10) + " go test -run '^" + name + "$' " + pkg
	if slow := os.Getenv("LOOPWHEEL_SLOW"); slow != "" {
		command = "LOOPWHEEL_SLOW=" + slow + " " + command
	}
	return command
}

// callingPackage is the package that called Seed.
func callingPackage() string {
	pc, _, _, _ := runtime.Caller(2)
	name := runtime.FuncForPC(pc).Name() // such as example.com/module/pkg_test.TestIt.func1
	slash := strings.LastIndexByte(name, '/') + 1
	last, _, _ := strings.Cut(name[slash:], ".")
	return name[:slash] + strings.TrimSuffix(last, "_test")
}

// Runs returns how many seeds a test tries: n, or a third of them with go test -short, which
// .ci/run adds to the race detector.
func Runs(n uint64) uint64 {
	if testing.Short() {
		return (n + 2) / 3
	}
	return n
}
