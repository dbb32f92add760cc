package main

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/examples/kv/store"
)

// A config is what CONFIG GET shows. It is read and written by all loops, seldom.
type config struct {
	mu     sync.Mutex
	values map[string]string
}

func newConfig(o options) *config {
	appendonly := "no"
	if o.dir != "" {
		appendonly = "yes"
	}
	return &config{values: map[string]string{
		"appendonly": appendonly, "appendfsync": o.fsync, "dir": o.dir, "save": "", "databases": "1",
		"maxmemory": fmt.Sprint(o.maxMemory), "maxmemory-policy": "noeviction", "requirepass": o.password,
		"timeout": fmt.Sprint(int(o.idle.Seconds())), "maxclients": fmt.Sprint(o.maxConns),
		"notify-keyspace-events": o.events.String(), "proto-max-bulk-len": fmt.Sprint(resp.DefaultMaxBulk),
		"slave-read-only": "yes", "bind": "", "port": "0",
	}}
}

// ignored are settings of redis-server about how it stores things. This server has one way for each
// type. Tools set them, so they may be set, and nothing comes of it.
var ignored = []string{
	"list-max-listpack-size", "list-max-ziplist-size", "list-compress-depth", "hash-max-listpack-entries", "hash-max-listpack-value",
	"hash-max-ziplist-entries", "hash-max-ziplist-value", "set-max-intset-entries", "set-max-listpack-entries", "set-max-listpack-value",
	"zset-max-listpack-entries", "zset-max-listpack-value", "zset-max-ziplist-entries", "zset-max-ziplist-value",
	"active-expire-effort", "hz", "activerehashing", "save", "lazyfree-lazy-user-del", "latency-monitor-threshold",
}

func (c *config) password() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values["requirepass"]
}

func (c *config) set(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[name] = value
}

// find returns the settings whose names match a pattern.
func (c *config) find(patterns [][]byte) (found [][2]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, value := range c.values {
		for _, p := range patterns {
			if store.Match([]byte(lower(p)), []byte(name)) {
				found = append(found, [2]string{name, value})
				break
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i][0] < found[j][0] })
	return found
}

var configCommands = []command{
	{name: "config|get", arity: -3, run: configGet},
	{name: "config|set", arity: -4, run: configSet},
	{name: "config|resetstat", arity: 2, run: func(s *session, _ [][]byte) { s.ok() }},
}

func configGet(s *session, args [][]byte) {
	found := s.server.config.find(args[2:])
	out := s.version.AppendMap(nil, len(found))
	for _, kv := range found {
		out = resp.AppendBulk(resp.AppendBulk(out, kv[0]), kv[1])
	}
	s.write(out)
}

func configSet(s *session, args [][]byte) {
	if len(args)%2 != 0 {
		s.refuse("ERR syntax error")
		return
	}
	for i := 2; i < len(args); i += 2 {
		if err := s.server.configure(lower(args[i]), string(args[i+1])); err != "" {
			s.refuse(err)
			return
		}
	}
	s.ok()
}

// configure changes a setting. It returns an error's text, or "".
func (s *server) configure(name, value string) string {
	failed := func(why string) string {
		return "ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + why
	}
	for _, i := range ignored {
		if i == name {
			s.config.set(name, value)
			return ""
		}
	}
	switch name {
	case "maxmemory":
		n, err := parseSize(value)
		if err != nil {
			return failed("argument must be a memory value")
		}
		s.maxMemory.Store(n)
		value = strconv.FormatInt(n, 10)
	case "requirepass":
	case "notify-keyspace-events":
		e, ok := store.ParseEvents(value)
		if !ok {
			return failed("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")
		}
		value = e.String()
		for _, sh := range s.shards {
			_ = sh.loop.Post(func() { sh.db.Events = e })
		}
	case "appendfsync":
		if value != "always" && value != "everysec" && value != "no" {
			return failed("argument(s) must be one of the following: everysec, always, no")
		}
		s.setFsync(value)
	default:
		return "ERR Unknown option or number of arguments for CONFIG SET - '" + strings.ToLower(name) + "'"
	}
	s.config.set(name, value)
	return ""
}
