//go:build unix

package exampletest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What testssl.sh, a stranger's test of TLS servers, has to say of examples/gateway. It runs
// those of its checks that end soon.
func TestTestSSL(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it takes half a minute; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	testssl, err := exec.LookPath("testssl")
	if err != nil {
		t.Skip("testssl is not installed (apt-get install testssl.sh); CI has it")
	}
	p := startRestarting(t, "TLS")
	// It waits for answers for some seconds and then goes on without, so that a machine that stands
	// still has it find anything: what is wrong is found each time.
	for try := 1; ; try++ {
		wrong := testsslFinds(t, testssl, p.addr)
		if len(wrong) == 0 {
			return
		}
		if t.Logf("run %d: %q", try, wrong); try == 3 {
			t.Fatal("no run was without a finding")
		}
	}
}

// testsslFinds runs it once, and returns what is not as it is to be.
func testsslFinds(t *testing.T, testssl, addr string) (wrong []string) {
	t.Helper()
	findings := filepath.Join(t.TempDir(), "findings.json")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testssl, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
		"--protocols", "--heartbleed", "--ccs-injection", "--renegotiation", "--compression", "--jsonfile", findings, addr)
	cmd.Env = append(os.Environ(), "HEADER_MAXSLEEP=1") // it looks for HTTP first
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", err, out) // its exit code is the number of its warnings
	got, err := readFindings(findings)
	if err != nil {
		return []string{err.Error()}
	}
	for id, want := range map[string]string{
		"SSLv2": "OK", "SSLv3": "OK", "TLS1": "INFO", "TLS1_1": "INFO", "TLS1_2": "OK", "TLS1_3": "OK",
		"heartbleed": "OK", "CCS": "OK", "secure_renego": "OK", "secure_client_renego": "OK", "CRIME_TLS": "OK",
	} {
		if got[id] != want {
			wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", id, got[id], want))
		}
	}
	for id, severity := range got {
		switch severity {
		case "LOW", "MEDIUM", "HIGH", "CRITICAL":
			wrong = append(wrong, id+": "+severity)
		}
	}
	return wrong
}

// readFindings returns how severe each of them is.
func readFindings(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []struct{ ID, Severity string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%w in %s", err, text)
	}
	got := make(map[string]string)
	for _, f := range list {
		got[f.ID] = f.Severity
	}
	return got, nil
}
