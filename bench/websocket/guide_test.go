package websocket

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What docs/coming-from.md shows of gorilla/websocket compiles.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```go gorilla\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("docs/coming-from.md has %d snippets with gorilla/websocket", len(found))
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "guide.go"), filepath.Join(dir, "overlay.json")
	code := "package guide\n\nimport (\n\t\"net/http\"\n\t\"time\"\n\n\t\"github.com/gorilla/websocket\"\n)\n\n" + found[0][1]
	here, err := filepath.Abs("guide/guide.go")
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]string{file: code, overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "./guide").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, strings.TrimSpace(string(out)))
	}
}
