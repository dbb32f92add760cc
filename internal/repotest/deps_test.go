package repotest

import (
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// layers are the packages for users, from the bottom up. None imports a package beside or above it,
// directly or through others. A new package must be given its place here.
var layers = [][]string{
	{"timing", "codec"},
	{"codec/codectest", "codec/mqtt", "codec/websocket", "timing/rediswheel"},
	{"loop", "loop/loopslog", "timing/rediswheel/wheelmetrics"},
	{"handler", "loop/handover", "loop/loopmetrics", "loop/looptest", "loop/realtest", "loop/scaletest"},
	{"handler/redisgroup", "loop/looptest/wstest"},
	{"handler/redisgroup/groupmetrics"},
	{"examples/chat", "examples/echo", "examples/gateway", "examples/match", "examples/proxy"},
}

func TestLayers(t *testing.T) {
	layerOf := func(pkg string) int {
		pkg = strings.TrimPrefix(pkg, modulePath+"/")
		return slices.IndexFunc(layers, func(row []string) bool { return slices.Contains(row, pkg) })
	}
	for line := range strings.Lines(goList(t, `{{.ImportPath}} {{join .Deps " "}}`, "./...")) {
		all := strings.Fields(line)
		pkg, deps := all[0], all[1:]
		layer := layerOf(pkg)
		if layer < 0 {
			if pkg != modulePath && !strings.Contains(pkg, "/internal/") {
				t.Errorf("%s has no place in layers", pkg)
			}
			continue
		}
		for _, dep := range deps {
			if layerOf(dep) >= layer {
				t.Errorf("%s imports %s, which is not below it", pkg, dep)
			}
			if dep == "time/tzdata" {
				t.Errorf("%s imports %s, which is for main packages of users", pkg, dep)
			}
		}
	}
	for line := range strings.Lines(goList(t, `{{.ImportPath}} {{join .Imports " "}}`, "./...")) {
		pkg, imports, _ := strings.Cut(line, " ")
		if strings.Contains(imports, "github.com/panjf2000/gnet/") && pkg != modulePath+"/loop/internal/gnetengine" {
			t.Errorf("%s imports gnet, which only gnetengine knows", pkg)
		}
	}
}

// The modules that a program links, beside this one. A program that uses only package loop gets
// neither a client of Redis nor one of Prometheus.
func TestLinkedModules(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the lists are those of Linux")
	}
	loop := []string{
		"github.com/mattn/go-colorable", "github.com/mattn/go-isatty", // of zerolog
		"github.com/panjf2000/ants/v2", "github.com/panjf2000/gnet/v2", "github.com/valyala/bytebufferpool",
		"go.uber.org/multierr", "go.uber.org/zap", "golang.org/x/sync", "gopkg.in/natefinch/lumberjack.v2", // of gnet
		"github.com/pires/go-proxyproto", "github.com/rs/zerolog", "golang.org/x/crypto", "golang.org/x/net", "golang.org/x/sys",
	}
	gateway := append([]string{
		"github.com/cloudflare/tableflip",
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"github.com/prometheus/procfs", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2",
		"github.com/munnerz/goautoneg", "google.golang.org/protobuf", "go.yaml.in/yaml/v2",
	}, loop...)
	for pkg, want := range map[string][]string{
		"./timing": nil, "./codec": nil,
		"./loop": loop, "./handler": loop, "./loop/looptest": loop, "./examples/echo": loop,
		"./examples/gateway": gateway,
	} {
		t.Run(pkg, func(t *testing.T) {
			linked := strings.Fields(goList(t, "-deps", "{{with .Module}}{{.Path}}{{end}}", pkg))
			slices.Sort(linked)
			for _, module := range slices.Compact(linked) {
				if module != modulePath && !slices.Contains(want, module) {
					t.Errorf("it links %s", module)
				}
			}
		})
	}
}

// goList returns what go list prints: args are flags, the format and the packages.
func goList(t *testing.T, args ...string) string {
	t.Helper()
	args = slices.Insert(args, len(args)-2, "-f")
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return string(out)
}
