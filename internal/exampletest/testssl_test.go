//go:build unix

package exampletest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// What testssl.sh finds in the TLS of examples/gateway. It runs those of its checks that end soon.
func TestTestSSL(t *testing.T) {
	testkit.NeedSlow(t, "it takes half a minute")
	testssl, err := exec.LookPath("testssl")
	if err != nil {
		t.Skip("testssl is not installed (apt-get install testssl.sh); CI has it")
	}
	p := startRestarting(t, "TLS")
	var wrong []string
	for range 3 { // it waits for answers for some seconds, and takes a slow machine for a wrong answer
		if wrong = testsslFinds(t, testssl, p.addr); len(wrong) == 0 {
			return
		}
	}
	t.Errorf("each of three runs finds something, the last %q", wrong)
}

// testsslFinds runs it once, and returns what it finds fault with.
func testsslFinds(t *testing.T, testssl, addr string) (wrong []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "findings.json")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testssl, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
		"--protocols", "--heartbleed", "--ccs-injection", "--renegotiation", "--compression", "--jsonfile", file, addr)
	cmd.Env = append(os.Environ(), "HEADER_MAXSLEEP=1") // it looks for HTTP first
	out, _ := cmd.CombinedOutput()                      // its exit code is the number of its warnings
	t.Logf("%s", out)
	text, err := os.ReadFile(file)
	var list []struct{ ID, Severity string }
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		return []string{err.Error()}
	}
	want := map[string]string{
		"SSLv2": "OK", "SSLv3": "OK", "TLS1": "INFO", "TLS1_1": "INFO", "TLS1_2": "OK", "TLS1_3": "OK",
		"heartbleed": "OK", "CCS": "OK", "secure_renego": "OK", "secure_client_renego": "OK", "CRIME_TLS": "OK",
	}
	for _, f := range list {
		severe := slices.Contains([]string{"LOW", "MEDIUM", "HIGH", "CRITICAL"}, f.Severity)
		if as, ok := want[f.ID]; severe || ok && f.Severity != as {
			wrong = append(wrong, f.ID+": "+f.Severity)
		}
		delete(want, f.ID)
	}
	for id := range want {
		wrong = append(wrong, id+" was not checked")
	}
	return wrong
}
