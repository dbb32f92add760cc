package redisgroup

import (
	"errors"
	"testing"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// Redis 6 tells errors of commands in scripts in other words than Redis 7.
func TestErrorsOfScripts(t *testing.T) {
	const head = "ERR Error running script (call to f_f3f0): @user_script:50: @user_script: 50: "
	for text, want := range map[string]struct {
		code string
		what outcome
	}{
		head + "-READONLY You can't write against a read only replica.":                           {"READONLY", later},
		"READONLY You can't write against a read only replica. script: f3f0, on @user_script:50.": {"READONLY", later},
		head + "-OOM command not allowed when used memory > 'maxmemory'.":                         {"OOM", refused},
		"OOM command not allowed when used memory > 'maxmemory'.":                                 {"OOM", refused},
		"@user_script: 7: -NOREPLICAS Not enough good replicas to write.":                         {"NOREPLICAS", later},
		head + "-NOPERM this user has no permissions to access one of the keys":                   {"NOPERM", refused},
		"MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.":  {"MISCONF", refused},
		"BUSY Redis is busy running a script.":                                                    {"BUSY", later},
		"ERR The user executing the script can't run this command or subcommand script: f3f0.":    {"NOPERM", refused},
		"ERR ACL failure in script: User u has no permissions to run the 'hset' command":          {"NOPERM", refused},
		"ERR wrong number of arguments":                                                           {"wrong", refused},
		"STALE a later command was here":                                                          {"STALE", unclear},
		"NOLEASE of a.0":                                                                          {"NOLEASE", later},
	} {
		if code, what := onredis.Code(answerError(text)), classify(answerError(text)); code != want.code || what != want.what {
			t.Errorf("%s: %q, %d; want %q, %d", text, code, what, want.code, want.what)
		}
	}
	if !onredis.Denied(errors.New(head + "-NOPERM no")) {
		t.Error("a denial is not seen")
	}
}
