// Package seed gives tests of random things their seeds. A run takes the same ones each time, so
// that a test that has passed passes again; hunts for faults set LOOPWHEEL_SEED.
package seed

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

const env = "LOOPWHEEL_SEED"

// Pick returns the seed that a test is to use: fixed, unless LOOPWHEEL_SEED is a number, which it
// is then, or "random", for another one each time. If the test fails, its log says which seed that
// was and what runs it again.
func Pick(t testing.TB, fixed uint64) uint64 {
	t.Helper()
	seed, err := pick(os.Getenv(env), fixed)
	if err != nil {
		t.Fatalf("%s must be a number or random: %v", env, err)
	}
	command := again(t.Name(), caller(), seed)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d; to run it again: %s", seed, command)
		}
	})
	return seed
}

func pick(set string, fixed uint64) (uint64, error) {
	switch set {
	case "":
		return fixed, nil
	case "random":
		return rand.Uint64(), nil
	}
	return strconv.ParseUint(set, 10, 64)
}

// again is the command that runs a test again. It names no subtest, as that may be called after the
// seed.
func again(name, pkg string, seed uint64) string {
	name, _, _ = strings.Cut(name, "/")
	command := env + "=" + strconv.FormatUint(seed, 10) + " go test -run '^" + name + "$' " + pkg
	if slow := os.Getenv("LOOPWHEEL_SLOW"); slow != "" {
		command = "LOOPWHEEL_SLOW=" + slow + " " + command
	}
	return command
}

// caller is the package that has called Pick.
func caller() string {
	pc, _, _, _ := runtime.Caller(2)
	name := runtime.FuncForPC(pc).Name() // such as example.com/module/pkg_test.TestIt.func1
	slash := strings.LastIndexByte(name, '/') + 1
	last, _, _ := strings.Cut(name[slash:], ".")
	return name[:slash] + strings.TrimSuffix(last, "_test")
}
