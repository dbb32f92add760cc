//go:build unix

package exampletest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// What testssl.sh finds in the TLS of examples/gateway: nothing that is wrong, and nothing that it
// does not find where crypto/tls keeps the connections. It runs those of its checks that end soon.
func TestTestSSL(t *testing.T) {
	testkit.NeedSlow(t, "it takes a minute")
	testssl, err := exec.LookPath("testssl")
	if err != nil {
		t.Skip("testssl is not installed (apt-get install testssl.sh); CI has it")
	}
	model := &loop.Server{Addr: "tcp://127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{testkit.Certificate("localhost")}},
		Debug: loop.Debug{CryptoTLS: true}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc((*loop.Conn).Send) }}
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Shutdown(context.Background()) })
	p := startRestarting(t, "TLS")
	var wrong []string
	for range 3 { // it waits for answers for some seconds, and takes a slow machine for a wrong answer
		want, err1 := testsslFinds(t, testssl, model.LocalAddr().String())
		got, err2 := testsslFinds(t, testssl, p.addr)
		if err := errors.Join(err1, err2); err != nil {
			wrong = []string{err.Error()}
			continue
		}
		if wrong = wrongFindings(got, want); len(wrong) == 0 {
			return
		}
	}
	t.Errorf("each of three runs finds something, the last %q", wrong)
}

// wrongFindings returns those that are severe, not what they must be, or not in want.
func wrongFindings(got, want map[string]string) (wrong []string) {
	for id, severity := range got {
		if slices.Contains([]string{"LOW", "MEDIUM", "HIGH", "CRITICAL"}, severity) || severity != want[id] {
			wrong = append(wrong, fmt.Sprintf("%s: %s, with crypto/tls %q", id, severity, want[id]))
		}
	}
	for id, severity := range map[string]string{
		"SSLv2": "OK", "SSLv3": "OK", "TLS1": "INFO", "TLS1_1": "INFO", "TLS1_2": "OK", "TLS1_3": "OK",
		"heartbleed": "OK", "CCS": "OK", "secure_renego": "OK", "secure_client_renego": "OK", "CRIME_TLS": "OK",
	} {
		if got[id] != severity {
			wrong = append(wrong, fmt.Sprintf("%s: %q, want %s", id, got[id], severity))
		}
	}
	return wrong
}

// testsslFinds runs it once, and returns how severe its findings are.
func testsslFinds(t *testing.T, testssl, addr string) (map[string]string, error) {
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
		return nil, err
	}
	found := map[string]string{}
	for _, f := range list {
		found[f.ID] = f.Severity
	}
	return found, nil
}
