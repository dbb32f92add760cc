package repotest

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
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

// A fence is a code block of a document.
type fence struct{ language, file, code string }

// fences returns the code blocks of a document. What follows the language is the name of the file
// that the block is.
func fences(t *testing.T, name string) (found []fence) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]*) ?([^\n]*)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		found = append(found, fence{string(m[1]), string(m[2]), string(m[3])})
	}
	return found
}

// getThis is how a module comes by this one. It names a package that imports what programs need:
// with the module's root, which imports nothing, go.sum would lack the modules below package loop,
// and no program would build.
const getThis = "go get " + modulePath + "/loop@latest"

// Someone who follows docs/getting-started.md word for word has a server that works. Only that the
// module comes from here, and the port, are other than they stand there.
func TestGettingStarted(t *testing.T) {
	dir := t.TempDir()
	// Without GOFLAGS: there may be no go.sum but what go get has written.
	run := func(line string) { goCommand(t, dir, "unset GOFLAGS; "+line) }
	var ran []string
	for _, f := range fences(t, "docs/getting-started.md") {
		switch f.language {
		case "go":
			if err := os.WriteFile(filepath.Join(dir, f.file), []byte(f.code), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			for line := range strings.Lines(f.code) {
				line = strings.TrimSpace(line)
				ran = append(ran, line)
				switch {
				case strings.HasPrefix(line, "mkdir"), line == "go run .":
				case strings.HasPrefix(line, "go get "):
					if line != getThis {
						t.Errorf("%q, want %q", line, getThis)
					}
					run(replaceThis(t))
					run("GOPROXY=off GOSUMDB=off " + strings.TrimSuffix(line, "@latest"))
				default:
					run(line)
				}
			}
		}
	}
	if len(ran) != 5 {
		t.Errorf("the commands are %q", ran)
	}
	addr := freeport.Addr(t)
	run("sed -i 's/127.0.0.1:7000/" + addr + "/' main.go && go build -o thermo .")
	cmd := exec.Command(filepath.Join(dir, "thermo"))
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
	_, _ = io.WriteString(c, "T\x00\x0421.5")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(bufio.NewReader(c)); string(got) != "O\x00\x1821.5 is the hottest of 1" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it was asked to end, and does so with %v", err)
	}
}

// snippetImports are the packages that snippets in documents may use without saying so.
var snippetImports = []string{
	"bufio", "bytes", "context", "crypto/rand", "crypto/tls", "database/sql", "encoding/binary", "encoding/json", "errors", "fmt", "hash/crc32", "io", "log", "log/slog", "maps", "net", "net/http",
	"os", "os/signal", "slices", "strconv", "sync", "syscall", "testing", "testing/synctest", "time",
	"github.com/alicebob/miniredis/v2", "github.com/panjf2000/gnet/v2", "github.com/prometheus/client_golang/prometheus", "github.com/redis/go-redis/v9", "github.com/rs/zerolog",
	modulePath + "/codec", modulePath + "/codec/codectest", modulePath + "/codec/websocket", modulePath + "/handler", modulePath + "/handler/redisgroup", modulePath + "/loop", modulePath + "/loop/loopslog",
	modulePath + "/loop/loopmetrics", modulePath + "/loop/looptest", modulePath + "/timing", modulePath + "/timing/rediswheel",
}

// followed are the documents whose Go is tested elsewhere, as far as their blocks have the name of
// a file or, in README.md, are the whole program.
var followed = map[string]string{
	"docs/getting-started.md": "TestGettingStarted",
	"README.md":               "TestReadmeProgram",
}

// gorilla marks the snippet that needs gorilla/websocket, which only bench/ requires: its test
// compiles it.
const gorilla = "gorilla"

// piecesOf are documents with blocks that are a piece of something: they show how a line is added
// to the tables of that package.
var piecesOf = map[string]string{"demos/kv/README.md": "demos/kv"}

// surroundings are what the snippets of a document use without showing it. Statements stand in a
// function with these parameters.
var surroundings = map[string]struct{ parameters, declarations string }{
	"docs/rooms.md": {
		"ctx context.Context, addr string, c *loop.Conn, arrived func(*loop.Conn, redisgroup.Arrival), msg []byte", "",
	},
	"docs/delays.md": {
		"ctx context.Context, client redis.UniversalClient, q *rediswheel.Queue, body []byte",
		"func closeOrder(context.Context, string, []byte) error { return nil }",
	},
	"README.md": {
		"logOut func([]timing.Entry[string, *User]), user *User, token string",
		"type User struct{}\nvar errNoLogin = errors.New(\"no login\")",
	},
}

// What is Go in the documents compiles, each block as a package, and what is a test there passes.
// No block is left out.
func TestSnippets(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("[de]*/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var packages, tests []string
	for _, name := range append(append(documents, more...), "README.md", "CONTRIBUTING.md") {
		for i, f := range fences(t, name) {
			if f.language != "go" || f.file == gorilla || piecesOf[name] != "" || followed[name] != "" && (f.file != "" || strings.HasPrefix(f.code, "package main")) {
				continue
			}
			pkg := fmt.Sprintf("%s%d", regexp.MustCompile(`[^a-z]`).ReplaceAllString(strings.ToLower(strings.TrimSuffix(name, ".md")), ""), i)
			if err := os.Mkdir(filepath.Join(dir, pkg), 0o700); err != nil {
				t.Fatal(err)
			}
			packages = append(packages, pkg)
			file := filepath.Join(dir, pkg, "snippet.go")
			if strings.Contains(f.code, "*testing.T") {
				file = filepath.Join(dir, pkg, "snippet_test.go")
				tests = append(tests, "./"+pkg)
			}
			if err := os.WriteFile(file, []byte(snippet(pkg, name, f.code)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	goCommand(t, dir, "go mod init example.com/snippets && "+useThis(t)+" && go build ./... && go test "+strings.Join(tests, " "))
	if len(packages) < 20 || len(tests) == 0 {
		t.Errorf("%d snippets, %d of them tests: does this still find them?", len(packages), len(tests))
	}
}

// goCommand runs a line of the shell in another module, which may change its go.mod.
func goCommand(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.Command("sh", "-e", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// useThis returns the command that has a module use this one as it is here, and all that it needs.
func useThis(t *testing.T) string {
	t.Helper()
	return replaceThis(t) + " && cp " + root + "/go.sum ."
}

// replaceThis returns the command that has a module take this one from here.
func replaceThis(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("go mod edit -require=%s@v0.0.0 -replace=%s=%s", modulePath, modulePath, root)
}

// snippet makes a file of a block, with the imports that it needs.
func snippet(pkg, document, code string) string {
	around := surroundings[document]
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0); err != nil {
		code = "func _(" + around.parameters + ") {\n" + code + useAll(code) + "}\n"
	}
	code += "\n" + around.declarations + "\n"
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport (\n", pkg)
	used := regexp.MustCompile(`// .*`).ReplaceAllString(code, "")
	for _, path := range snippetImports {
		name := regexp.MustCompile(`/v\d+$`).ReplaceAllString(path, "")
		name = strings.TrimPrefix(name[strings.LastIndex(name, "/")+1:], "go-")
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(used) {
			fmt.Fprintf(&b, "\t%q\n", path)
		}
	}
	b.WriteString(")\n\n")
	b.WriteString(code)
	return b.String()
}

// useAll returns statements that use the variables which statements declare.
func useAll(code string) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^([a-z, ]+) :=`).FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			fmt.Fprintf(&b, "_ = %s\n", strings.TrimSpace(name))
		}
	}
	return b.String()
}

// Each test and each Example that the documents name is there.
func TestNamedTestsExist(t *testing.T) {
	there := make(map[string]bool)
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.isTest() {
				there[fn.Name.Name] = true
			}
		}
	}
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range documents {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`").FindAllSubmatch(text, -1) {
			if named++; !there[string(m[1])] {
				t.Errorf("%s: there is no test %s", name, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}

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
