//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What testssl.sh, a stranger's test of TLS servers, has to say of ours. It runs those of its
// checks that end soon.
func TestTestSSL(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it takes half a minute; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	testssl, err := exec.LookPath("testssl")
	if err != nil {
		t.Skip("testssl is not installed (apt-get install testssl.sh); CI has it")
	}
	p := startRestarting(t, "TLS")
	findings := filepath.Join(t.TempDir(), "findings.json")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testssl, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
		"--protocols", "--heartbleed", "--ccs-injection", "--renegotiation", "--compression", "--jsonfile", findings, p.addr)
	cmd.Env = append(os.Environ(), "HEADER_MAXSLEEP=1") // it looks for HTTP first
	out, err := cmd.CombinedOutput()
	t.Logf("%v\n%s", err, out) // its exit code is the number of its warnings
	got := readFindings(t, findings)
	for id, want := range map[string]string{
		"SSLv2": "OK", "SSLv3": "OK", "TLS1": "INFO", "TLS1_1": "INFO", "TLS1_2": "OK", "TLS1_3": "OK",
		"heartbleed": "OK", "CCS": "OK", "secure_renego": "OK", "secure_client_renego": "OK", "CRIME_TLS": "OK",
	} {
		if got[id] != want {
			t.Errorf("%s: %q, want %q", id, got[id], want)
		}
	}
	for id, severity := range got {
		switch severity {
		case "LOW", "MEDIUM", "HIGH", "CRITICAL":
			t.Errorf("%s: %s", id, severity)
		}
	}
}

// readFindings returns how severe each of them is.
func readFindings(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ ID, Severity string }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	got := make(map[string]string)
	for _, f := range list {
		got[f.ID] = f.Severity
	}
	return got
}
