package loopwheel_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors says what each package may import besides the standard library. The packages are those of
// this module if their names have no dot; a name stands for all packages below it, too, if it ends
// in "/...". No arrow points up or sideways: a new package must be given its place here.
//
// Tests are free: those of package loop may use looptest, which is above it.
var floors = map[string][]string{
	".": {},

	// Floor 0: the standard library only.
	"timing":          {},
	"codec":           {},
	"codec/codectest": {"codec"},

	// Floor 1: gnet is behind the seam of loop/internal/engine, and only gnetengine knows it.
	"loop/internal/engine":     {},
	"loop/internal/procs":      {},
	"loop/internal/owner":      {"loop/internal/goroutine"},
	"loop/internal/unixsock":   {sysModule},
	"loop":                     {"timing", "codec", "loop/internal/...", zerologModule, sysModule, "internal/inside"},
	"loop/internal/inspect":    {},
	"loop/internal/goroutine":  {},
	"loop/internal/peak":       {},
	"loop/internal/gate":       {},
	"loop/internal/mailbox":    {},
	"loop/internal/alarm":      {},
	"loop/internal/jobs":       {},
	"loop/internal/outbox":     {"codec"},
	"loop/internal/watchdog":   {"loop/internal/goroutine", zerologModule},
	"loop/internal/netpackets": {"loop/internal/engine", sysModule},
	"loop/internal/gnetengine": {"loop/internal/engine", "loop/internal/netpackets", "loop/internal/procs", "loop/internal/unixsock", gnetModule, zerologModule, sysModule},

	// Floor 2: what is built on loops.
	"handler":            {"codec", "loop", "timing", zerologModule, "internal/inside"},
	"handler/redisgroup": {"internal/redisopt", "codec", "codec/resp", "handler", "loop", "timing", redisModule, zerologModule, sysModule}, // a leaf: go-redis is for those who want it

	"loop/loopmetrics": {"loop", "timing", prometheusModule}, // another, for Prometheus
	"loop/looptest":    {"codec", "loop", "loop/internal/engine", "timing", zerologModule, "internal/inside", "internal/selfsigned"},

	// Beside floor 1: a codec that needs a library.
	"codec/resp":      {"codec"},
	"codec/websocket": {"codec", wsModule, httpheadModule},

	// Beside floor 1: delays on Redis.
	"timing/rediswheel":              {"timing", redisModule, cronModule, netModule, zerologModule},
	"timing/rediswheel/wheelmetrics": {"timing/rediswheel", prometheusModule}, // a leaf

	// Beside floor 2: tests, and what they share.
	"loop/internal/rig": {"loop", "loop/looptest", "loop/internal/inspect"},
	"loop/realtest":     {},

	// Floor 3: programs.
	"examples/echo":             {"codec", "handler", "loop", "loop/loopmetrics", zerologModule, tableflipModule, "examples/internal/certs", "examples/internal/cli"},
	"examples/chat":             {"codec", "codec/websocket", "handler", "loop", "loop/loopmetrics", zerologModule, "handler/redisgroup", redisModule, miniredisModule, textModule, "timing/rediswheel", "examples/internal/certs", "examples/internal/cli"},
	"examples/internal/browser": {wsModule},
	"examples/delay":            {"timing/rediswheel", redisModule, miniredisModule, zerologModule, "examples/internal/cli"},
	"examples/kv":               {"codec/resp", "examples/kv/aof", "examples/kv/store", "handler", "loop", zerologModule, "examples/internal/cli"},
	"examples/kv/aof":           {"codec/resp", sysModule},
	"examples/kv/store":         {"codec/resp", "loop", btreeModule, dequeModule},
	"examples/proxy":            {"loop", zerologModule, "examples/internal/cli", "loop/loopmetrics", "examples/internal/certs"},
	"loop/internal/netengine":   {"loop/internal/engine", "loop/internal/netpackets", "loop/internal/unixsock", sysModule},
	"examples/dns":              {"codec", "handler", "loop", zerologModule, "github.com/miekg/dns", "examples/internal/cli"},
	"loop/internal/tlsconn":     {"loop/internal/engine", "loop/internal/goroutine"},
	"loop/internal/proxyhead":   {proxyModule},
	"loop/scaletest":            {},
	"examples/internal/certs":   {"internal/selfsigned"},
	"examples/internal/cli":     {zerologModule},
	"examples/internal/clitest": {},
	"internal/freeport":         {},
	"internal/haproxytest":      {"internal/filelimit", "internal/freeport"},
	"internal/listening":        {},
	"internal/stalls":           {},
	"internal/selfsigned":       {},
	"internal/redistest":        {redisModule},
	"internal/inside":           {},
	"internal/shortdir":         {},
	"internal/filelimit":        {sysModule},
	"internal/seed":             {},
	"internal/redisopt":         {redisModule},
}

const (
	gnetModule       = "github.com/panjf2000/gnet/v2/..."
	zerologModule    = "github.com/rs/zerolog"
	wsModule         = "github.com/gobwas/ws/..."
	httpheadModule   = "github.com/gobwas/httphead"
	prometheusModule = "github.com/prometheus/client_golang/..."
	miniredisModule  = "github.com/alicebob/miniredis/v2"
	textModule       = "golang.org/x/text/..."
	btreeModule      = "github.com/tidwall/btree"
	dequeModule      = "github.com/gammazero/deque"
	netModule        = "golang.org/x/net/http/httpguts"
	sysModule        = "golang.org/x/sys/..."
	tableflipModule  = "github.com/cloudflare/tableflip"
	proxyModule      = "github.com/pires/go-proxyproto"
	cronModule       = "github.com/netresearch/go-cron"
	redisModule      = "github.com/redis/go-redis/v9/..."
)

func TestImportFloors(t *testing.T) {
	for _, f := range sources(t) {
		allowed, known := floors[f.dir()]
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
			if !isStandard(imported) && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, imported) }) {
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
		{gnetModule, "github.com/panjf2000/gnet/v2", true},
		{gnetModule, "github.com/panjf2000/gnet/v2/pkg/io", true},
		{gnetModule, "github.com/panjf2000/gnet", false},
	} {
		if got := covers(tt.entry, tt.imported); got != tt.want {
			t.Errorf("covers(%q, %q) = %v", tt.entry, tt.imported, got)
		}
	}
}
