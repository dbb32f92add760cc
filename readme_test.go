package loopwheel_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/freeport"
)

// blocks returns the code blocks of a language in README.md.
func blocks(t *testing.T, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

// Two commands are all that a newcomer has to know. CI runs the second as it stands there.
func TestReadmeCommands(t *testing.T) {
	got := strings.Split(strings.TrimSpace(strings.Join(blocks(t, "sh"), "")), "\n")
	if want := []string{"go run ./examples/echo", "go test ./..."}; !slices.Equal(got, want) {
		t.Errorf("the commands of README.md are %q, want %q", got, want)
	}
}

// The program in README.md builds, and does what it is said to do.
func TestReadmeProgram(t *testing.T) {
	if page, err := os.ReadFile("README.md"); err != nil || !strings.Contains(string(page), "`"+getThis+"`") {
		t.Errorf("README.md does not say %q (%v)", getThis, err)
	}
	addr := freeport.Addr(t)
	program := strings.Replace(blocks(t, "go")[0], "127.0.0.1:7000", addr, 1)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "first")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	c := dialSoon(t, addr)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "hello\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// dialSoon tries until the program listens; it says nothing when it does.
func dialSoon(t *testing.T, addr string) net.Conn {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err == nil {
			return c
		}
	}
	t.Fatal(err)
	return nil
}

// Each figure in README.md's reasons stands in docs/performance.md, as it is said there.
func TestReadmeFigures(t *testing.T) {
	figure := regexp.MustCompile(`\b\d[\d,]*(\.\d+)?\b`)
	there := figure.FindAllString(read(t, "docs/performance.md"), -1)
	found := figure.FindAllString(section(t, "README.md", "Why"), -1)
	for _, n := range found {
		if !slices.Contains(there, n) {
			t.Errorf("README.md says %s, docs/performance.md does not", n)
		}
	}
	if len(found) < 10 {
		t.Errorf("%d figures were found: does this still see them?", len(found))
	}
}

// Links between the documents lead somewhere: to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	links := 0
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
				t.Errorf("%s: %s has no heading for %s", name, to, m[2])
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links were found: does this still see them?", links)
	}
}

// documents returns all Markdown of the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "*/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// prose returns a document without its code blocks.
func prose(t *testing.T, name string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(read(t, name), "")
}

// anchors returns the anchors that GitHub makes of a document's headings.
func anchors(t *testing.T, name string) (found []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(t, name), -1) {
		words := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	return found
}
