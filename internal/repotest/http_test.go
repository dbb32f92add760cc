package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each server of net/http, in code and documents, has a time for a request and one for silence
// (ReadTimeout is both, where there is no other): who is slow does not keep a connection for ever.
func TestHTTPServersHaveTimeouts(t *testing.T) {
	servers := regexp.MustCompile(`http\.Server\{[^}]*\}`)
	without := regexp.MustCompile(`http\.(ListenAndServe|ListenAndServeTLS|Serve|ServeTLS)\(`)
	found := 0
	for name := range trackedFiles(t) {
		ext := filepath.Ext(name)
		if ext != ".md" && ext != ".go" || strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "example") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for _, s := range servers.FindAllString(text, -1) {
			if found++; !strings.Contains(s, "ReadTimeout:") {
				t.Errorf("%s: %s has no ReadTimeout", name, s)
			}
		}
		if s := without.FindString(text); s != "" {
			t.Errorf("%s: %s has no timeouts", name, s)
		}
	}
	if found < 5 {
		t.Errorf("only %d servers found", found)
	}
}
