package repotest

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// getThis is how a module comes by this one. It names a package that imports what programs need:
// with the module's root, which imports nothing, go.sum would lack the modules below package loop,
// and no program would build.
const getThis = "go get " + modulePath + "/loop@latest"

// Someone who follows docs/getting-started.md word for word, in either language, has a server that
// works. Two things differ here: where the module comes from, and the port.
func TestGettingStarted(t *testing.T) {
	for _, page := range []string{"docs/getting-started.md", "docs/getting-started.zh-CN.md"} {
		t.Run(page, func(t *testing.T) { gettingStarted(t, page) })
	}
}

func gettingStarted(t *testing.T, page string) {
	addr := testkit.FreeAddr(t)
	c, end := start(t, follow(t, page, "127.0.0.1:7000", addr), addr)
	_, _ = io.WriteString(c, "T\x00\x0421.5")
	_ = c.CloseWrite()
	got, err := io.ReadAll(c)
	if want := "O\x00\x1821.5 is the hottest of 1"; string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if err := end(); err != nil {
		t.Errorf("after an interrupt it ends with %v, want nil", err)
	}
}

// Someone who follows docs/mqtt.md has a broker of 150 lines, which sends a client its own
// message, and a retained one for the filter that selects it, and refuses one without a name and
// those of other versions (MQTT-3.1.2-2).
func TestMQTTBroker(t *testing.T) {
	for _, f := range codeIn(t, "docs/mqtt.md") {
		if lines := strings.Count(f.code, "\n"); f.language == "go" && lines > 150 {
			t.Errorf("%s has %d lines, want at most 150", f.file, lines)
		}
	}
	addr := testkit.FreeAddr(t)
	c, _ := start(t, follow(t, "docs/mqtt.md", "127.0.0.1:1883", addr), addr)
	_, _ = io.WriteString(c, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"+"\x82\x08\x00\x01\x00\x03a/+\x00"+"\x30\x07\x00\x03a/bhi"+
		"\x31\x04\x00\x01rk"+"\x82\x06\x00\x02\x00\x01r\x00"+"\x82\x06\x00\x03\x00\x01z\x00"+"\xc0\x00")
	want := "\x20\x02\x00\x00" + "\x90\x03\x00\x01\x00" + "\x30\x07\x00\x03a/bhi" +
		"\x31\x04\x00\x01rk" + "\x90\x03\x00\x02\x00" + "\x90\x03\x00\x03\x00" + "\xd0\x00"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, tt := range []struct{ name, connect, want string }{
		{"without a name and clean session", "\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00", "\x20\x02\x00\x02"},
		{"of version 5", "\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00", "\x20\x02\x00\x01"},
		{"of version 6", "\x10\x0c\x00\x04MQTT\x06\x02\x00\x3c\x00\x00", "\x20\x02\x00\x01"},
		{"of version 3.1", "\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01a", "\x20\x02\x00\x01"},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, tt.connect)
		if got, err := io.ReadAll(c); string(got) != tt.want || err != nil {
			t.Errorf("a client %s gets %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

// follow does what a page says, but with another address, and returns the program that comes of it.
func follow(t *testing.T, page, addr, other string) (program string) {
	dir := t.TempDir()
	// Without GOFLAGS: there may be no go.sum but what go get has written.
	run := func(line string) { goCommand(t, dir, "unset GOFLAGS; "+line) }
	var ran []string
	for _, f := range codeIn(t, page) {
		switch f.language {
		case "go":
			write(t, filepath.Join(dir, f.file), f.code)
		case "sh":
			for line := range strings.Lines(f.code) {
				line = strings.TrimSpace(line)
				ran = append(ran, line)
				switch {
				case strings.HasPrefix(line, "mkdir"), line == "go run .":
				case line == getThis:
					run(replaceThis())
					run("GOPROXY=off GOSUMDB=off " + strings.TrimSuffix(line, "@latest"))
				default:
					run(line)
				}
			}
		}
	}
	if !slices.Contains(ran, getThis) {
		t.Errorf("the commands are %q, want %q among them", ran, getThis)
	}
	run("sed -i 's/" + addr + "/" + other + "/' main.go && go build -o followed .")
	return filepath.Join(dir, "followed")
}

// The program in README.md builds, and echoes, in either language.
func TestReadmeProgram(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		t.Run(page, func(t *testing.T) { readmeProgram(t, page) })
	}
}

func readmeProgram(t *testing.T, page string) {
	if !strings.Contains(read(t, page), "`"+getThis+"`") {
		t.Errorf("%s does not have %q", page, getThis)
	}
	var program string
	for _, f := range codeIn(t, page) {
		if f.language == "go" && strings.HasPrefix(f.code, "package main") {
			program = f.code
		}
	}
	addr := testkit.FreeAddr(t)
	binary := filepath.Join(t.TempDir(), "first")
	write(t, binary+".go", strings.Replace(program, "127.0.0.1:7000", addr, 1))
	goCommand(t, root, "go build -buildvcs=false -o "+binary+" "+binary+".go")
	c, _ := start(t, binary, addr)
	_, _ = io.WriteString(c, "hello\n")
	got, err := bufio.NewReader(c).ReadString('\n')
	if want := "hello\n"; got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// start starts a program, which prints nothing when it listens, and connects to it. end interrupts
// the program and returns how it ended.
func start(t *testing.T, program, addr string) (c *net.TCPConn, end func() error) {
	t.Helper()
	cmd := exec.Command(program)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testkit.Eventually(t, "the program listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			c = conn.(*net.TCPConn)
		}
		return err == nil
	})
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return c, func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		return cmd.Wait()
	}
}

// Two commands are all that a newcomer has to know. CI runs the second as README.md has it.
func TestReadmeCommands(t *testing.T) {
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		var got string
		for _, f := range codeIn(t, page) {
			if f.language == "sh" {
				got += f.code
			}
		}
		if want := "go run ./examples/echo\ngo test ./...\n"; got != want {
			t.Errorf("the commands of %s are %q, want %q", page, got, want)
		}
	}
}

// snippetImports are the packages that snippets in documents may use without saying so.
var snippetImports = []string{
	"bufio", "bytes", "context", "crypto/rand", "crypto/tls", "database/sql", "encoding/binary", "encoding/json", "errors", "fmt", "hash/crc32", "io", "log", "log/slog", "maps", "net", "net/http",
	"os", "os/signal", "slices", "strconv", "sync", "syscall", "testing", "testing/synctest", "time",
	"github.com/alicebob/miniredis/v2", "github.com/panjf2000/gnet/v2", "github.com/prometheus/client_golang/prometheus", "github.com/redis/go-redis/v9", "github.com/rs/zerolog",
	modulePath + "/codec", modulePath + "/codec/codectest", modulePath + "/codec/mqtt", modulePath + "/codec/websocket", modulePath + "/handler", modulePath + "/handler/redisgroup", modulePath + "/loop", modulePath + "/loop/handover", modulePath + "/loop/loopslog",
	modulePath + "/loop/loopmetrics", modulePath + "/loop/looptest", modulePath + "/timing", modulePath + "/timing/rediswheel",
}

// followed are the documents whose Go is tested elsewhere, as far as their blocks have the name of
// a file or, in README.md, are the whole program.
var followed = map[string]string{
	"docs/getting-started.md":       "TestGettingStarted",
	"docs/getting-started.zh-CN.md": "TestGettingStarted",
	"docs/mqtt.md":                  "TestMQTTBroker",
	"README.md":                     "TestReadmeProgram",
	"README.zh-CN.md":               "TestReadmeProgram",
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

// Each block of Go in the documents compiles, as a package, and each block that is a test passes.
func TestSnippets(t *testing.T) {
	dir := t.TempDir()
	packages := 0
	var tests []string
	for _, name := range documents(t) {
		for i, f := range codeIn(t, name) {
			if f.language != "go" || f.file == gorilla || piecesOf[name] != "" || followed[name] != "" && (f.file != "" || strings.HasPrefix(f.code, "package main")) {
				continue
			}
			pkg := fmt.Sprintf("%s%d", regexp.MustCompile(`[^a-z]`).ReplaceAllString(strings.ToLower(strings.TrimSuffix(name, ".md")), ""), i)
			if err := os.Mkdir(filepath.Join(dir, pkg), 0o700); err != nil {
				t.Fatal(err)
			}
			packages++
			file := filepath.Join(dir, pkg, "snippet.go")
			if strings.Contains(f.code, "*testing.T") {
				file = filepath.Join(dir, pkg, "snippet_test.go")
				tests = append(tests, "./"+pkg)
			}
			write(t, file, snippet(pkg, name, f.code))
		}
	}
	if packages < 20 || len(tests) == 0 {
		t.Fatalf("%d snippets, %d of them tests: does this still find them?", packages, len(tests))
	}
	goCommand(t, dir, "go mod init example.com/snippets && "+replaceThis()+" && cp "+root+"/go.sum . && go build ./... && go test "+strings.Join(tests, " "))
}

// The players of docs/matches.md move from match to match, and the race detector, which needs cgo,
// finds nothing.
func TestMatches(t *testing.T) {
	dir := t.TempDir()
	blocks := codeIn(t, "docs/matches.md")
	if len(blocks) != 1 {
		t.Fatalf("docs/matches.md has %d blocks of code, want 1", len(blocks))
	}
	write(t, filepath.Join(dir, "matches.go"), snippet("matches", "docs/matches.md", blocks[0].code))
	write(t, filepath.Join(dir, "matches_test.go"), read(t, "internal/repotest/testdata/matches_test.go"))
	goCommand(t, dir, "go mod init example.com/matches && "+replaceThis()+" && cp "+root+"/go.sum .")
	goCommand(t, dir, "test $(go env CGO_ENABLED) = 0 || race=-race; go test $race .")
}

// goCommand runs a line of the shell in a module, which may change its go.mod.
func goCommand(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.Command("sh", "-e", "-c", line)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// replaceThis returns the command by which a module takes this one from here.
func replaceThis() string {
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
	for _, name := range testFiles(t) {
		for _, m := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(`).FindAllStringSubmatch(read(t, name), -1) {
			there[m[1]] = true
		}
	}
	named := 0
	for _, name := range glob(t, "docs/*.md") {
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`").FindAllStringSubmatch(read(t, name), -1) {
			if named++; !there[m[1]] {
				t.Errorf("%s: there is no test %s", name, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}

// testFiles returns the files of tests of all modules.
func testFiles(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(name) > 1 && strings.HasPrefix(name, ".") {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// thrownAway is a statement that ignores whether a mailbox took a function.
var thrownAway = regexp.MustCompile(`(?m)^\s*(// *)?(_ = )?[\w.\[\]%]+(\([\w.,() ]*\))?\.(Tell|Post)\(.*`)

// Code that readers copy uses the results of Tell and Post: in the documents, the examples, the
// demos and doc comments.
func TestResultsOfTell(t *testing.T) {
	for _, name := range glob(t, "*.md", "docs/*.md", "*/*/README.md", "*.go", "*/*.go", "*/*/*.go", "*/*/*/*.go") {
		text := read(t, name)
		whole := !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "demos/") || strings.Contains(name, "example")
		for _, m := range thrownAway.FindAllString(text, -1) {
			if line := strings.TrimSpace(m); whole || strings.HasPrefix(line, "//") {
				t.Errorf("%s ignores the result of %s", name, line)
			}
		}
	}
}
