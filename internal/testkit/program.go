package testkit

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const programEnv = "LOOPWHEEL_TEST_PROGRAM"

// MainOrTests is for TestMain of a command: it runs main in a process that FlagErrors has started,
// and otherwise the tests.
func MainOrTests(m *testing.M, main func()) {
	if os.Getenv(programEnv) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Program returns the command that the test binary is of, to be started with flags.
func Program(ctx context.Context, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], flags...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	return cmd
}

// FlagErrors runs this program once for each row. The first column is what it must say, such as the
// name of a flag, before it exits with an error. The others are its arguments.
func FlagErrors(t *testing.T, rows [][]string) { FlagErrorsOf(t, Program, rows) }

// FlagErrorsOf is FlagErrors for another command.
func FlagErrorsOf(t *testing.T, command func(ctx context.Context, args ...string) *exec.Cmd, rows [][]string) {
	for _, row := range rows {
		want, args := row[0], row[1:]
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := command(ctx, args...).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Errorf("it ends with %v, want an error", err)
			}
			if got := string(out); !strings.Contains(got, want) || strings.Contains(got, "goroutine 1 [") {
				t.Errorf("it says %q, want %q in it", got, want)
			}
		})
	}
}
