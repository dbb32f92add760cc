package repotest

import (
	"encoding/json"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors says what each package of the main module may import besides the standard library. A name
// without a dot is a package of this module. "/..." stands for all packages below, and for the
// package itself where it is something that is imported; the longest name that covers a package
// counts. No arrow points up or sideways: a new public package must be given its place here.
//
// Tests are free: those of package loop may use looptest, which is above it.
var floors = map[string][]string{
	".": {},

	// Floor 0: the standard library only.
	"timing":           {},
	"codec":            {"internal/length"},
	"codec/codectest":  {"codec", "internal/framing"},
	"internal/framing": {"codec", "internal/length"},
	"internal/length":  {},

	// Floor 1: codecs and delays that need more.
	"codec/resp":                     {"codec"},
	"codec/websocket":                {"codec", "github.com/gobwas/ws/...", "github.com/gobwas/httphead"},
	"internal/defaults":              {},
	"internal/onredis":               {redisModule},
	"timing/rediswheel":              {"timing", "internal/onredis", redisModule, zerologModule, "github.com/netresearch/go-cron", "golang.org/x/net/http/httpguts"},
	"timing/rediswheel/wheelmetrics": {"timing/rediswheel", "github.com/prometheus/client_golang/..."}, // a leaf

	// Floor 2: loops. Only gnetengine knows gnet.
	"loop":                     {"timing", "codec", "internal/defaults", "internal/framing", "loop/internal/...", zerologModule, sysModule},
	"loop/internal/...":        {"codec", "timing", "internal/framing", "loop/internal/...", zerologModule, sysModule},
	"loop/internal/engine":     {},
	"loop/internal/taskloop":   {"loop/internal/engine"},
	"loop/internal/gnetengine": {"loop/internal/...", "github.com/panjf2000/gnet/v2/...", zerologModule, sysModule},
	"loop/internal/netpackets": {"loop/internal/engine", "golang.org/x/net/ipv4", "golang.org/x/net/ipv6", sysModule},
	"loop/internal/proxydial":  {"golang.org/x/net/proxy"},
	"loop/internal/proxyhead":  {"github.com/pires/go-proxyproto"},

	// Floor 3: what is built on loops. Heavy libraries are for those who import these.
	"handler":                         {"codec", "loop", "timing", zerologModule},
	"handler/redisgroup":              {"handler", "internal/defaults", "internal/onredis", "loop", "timing", redisModule, zerologModule},
	"handler/redisgroup/groupmetrics": {"handler/redisgroup", "github.com/prometheus/client_golang/..."}, // a leaf
	"loop/loopmetrics":                {"internal/hostguard", "loop", "timing", "github.com/prometheus/client_golang/..."},
	"loop/loopslog":                   {zerologModule},
	"loop/looptest":                   {"codec", "loop", "loop/internal/engine", "loop/internal/taskloop", "timing", "internal/selfsigned", zerologModule},
	"loop/looptest/...":               {"codec/websocket", "loop/looptest", "github.com/gobwas/ws"},
	"loop/handover":                   {"loop", sysModule},
	"loop/realtest":                   {},
	"loop/scaletest":                  {},

	// Floor 4: programs, and what they and the tests share.
	"examples/...": {
		"codec/...", "timing/...", "loop", "loop/handover", "loop/loopmetrics", "handler/...",
		zerologModule,
	},
	"internal/...":        {"internal/...", zerologModule, redisModule, sysModule},
	"internal/hostguard":  {},
	"internal/redistest":  {redisModule, "github.com/alicebob/miniredis/v2"},
	"internal/rig":        {"loop", "loop/looptest"},
	"internal/selfsigned": {},
}

const (
	zerologModule = "github.com/rs/zerolog"
	sysModule     = "golang.org/x/sys/..."
	redisModule   = "github.com/redis/go-redis/v9/..."
)

// allowed returns the entry of floors that counts for a package.
func allowed(pkg string) (imports []string, known bool) {
	if imports, known = floors[pkg]; known {
		return imports, true
	}
	for dir := pkg; dir != "."; {
		dir = path.Dir(dir)
		if imports, known = floors[dir+"/..."]; known {
			return imports, true
		}
	}
	return nil, false
}

func TestImportFloors(t *testing.T) {
	for _, f := range sources(t) {
		if f.module != "." {
			continue
		}
		may, known := allowed(f.dir())
		if !known {
			t.Errorf("%s: package %s has no place in floors: say there what it may import", f.name, f.dir())
			continue
		}
		if f.isTest() {
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if imported == "unsafe" && !strings.HasPrefix(f.dir(), "loop/internal/") {
				t.Errorf("%s imports unsafe, which is for loop/internal", fset.Position(spec.Pos()))
			}
			if !isStandard(imported) && !slices.ContainsFunc(may, func(a string) bool { return covers(a, imported) }) {
				t.Errorf("%s imports %s, which is not below %s", fset.Position(spec.Pos()), imported, f.dir())
			}
		}
	}
}

// isStandard reports whether an import path is of the standard library: its first element has no
// dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// covers reports whether an entry of floors allows an import.
func covers(entry, imported string) bool {
	if first, _, _ := strings.Cut(entry, "/"); !strings.Contains(first, ".") {
		entry = modulePath + "/" + entry
	}
	prefix, deep := strings.CutSuffix(entry, "/...")
	return imported == prefix || deep && strings.HasPrefix(imported, prefix+"/")
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		entry, imported string
		want            bool
	}{
		{"codec", modulePath + "/codec", true},
		{"codec", modulePath + "/codec/websocket", false},
		{"codec", modulePath + "/codecs", false},
		{"loop/internal/...", modulePath + "/loop/internal/engine", true},
		{"loop/internal/...", modulePath + "/loop/internals", false},
		{redisModule, "github.com/redis/go-redis/v9", true},
		{redisModule, "github.com/redis/go-redis/v9/maintnotifications", true},
		{redisModule, "github.com/redis/go-redis", false},
	} {
		if got := covers(tt.entry, tt.imported); got != tt.want {
			t.Errorf("covers(%q, %q) = %v", tt.entry, tt.imported, got)
		}
	}
}

// The modules that a program links, beside this one. Who uses only package loop gets neither a
// client of Redis nor one of Prometheus.
func TestLinkedModules(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the lists are those of Linux")
	}
	loop := []string{
		"github.com/mattn/go-colorable", "github.com/mattn/go-isatty", // of zerolog
		"github.com/panjf2000/ants/v2", "github.com/panjf2000/gnet/v2", "github.com/valyala/bytebufferpool",
		"go.uber.org/multierr", "go.uber.org/zap", "golang.org/x/sync", "gopkg.in/natefinch/lumberjack.v2", // of gnet
		"github.com/pires/go-proxyproto", "github.com/rs/zerolog", "golang.org/x/net", "golang.org/x/sys",
	}
	metrics := []string{
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"github.com/prometheus/procfs", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2",
		"github.com/munnerz/goautoneg", "google.golang.org/protobuf", "go.yaml.in/yaml/v2",
	}
	for pkg, want := range map[string][]string{
		"./timing":           {},
		"./codec":            {},
		"./codec/resp":       {},
		"./loop":             loop,
		"./handler":          loop,
		"./loop/looptest":    loop,
		"./examples/echo":    loop,
		"./examples/gateway": append(append([]string{"github.com/cloudflare/tableflip"}, metrics...), loop...),
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", pkg, err)
		}
		linked := strings.Fields(string(out))
		slices.Sort(linked)
		for _, module := range slices.Compact(linked) {
			if module != modulePath && !slices.Contains(want, module) {
				t.Errorf("%s links %s", pkg, module)
			}
		}
	}
}

// maxRequirements is how many modules the main one may require directly.
const maxRequirements = 12

func TestDirectRequirements(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) > maxRequirements || len(direct) == 0 {
		t.Errorf("go.mod requires %d modules directly, more than %d: %q", len(direct), maxRequirements, direct)
	}
}
