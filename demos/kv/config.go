package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
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
		"timeout": fmt.Sprint(int(math.Ceil(o.idle.Seconds()))), "maxclients": fmt.Sprint(o.maxConns),
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

// change makes changes, all before or behind those of a client on another loop.
func (c *config) change(changes []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range changes {
		c.values[ch.name] = ch.value
		if ch.apply != nil {
			ch.apply()
		}
	}
}

func (c *config) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.values[name]
	return ok
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
	{name: "config|rewrite", arity: 2, run: func(s *session, _ [][]byte) { s.refuse("ERR The server is running without a config file") }},
	{name: "config|help", arity: 2, run: help(configHelp)},
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

// A change is one setting of a CONFIG SET, found to be right.
type change struct {
	name, value string
	apply       func() // nil if nothing comes of it
}

// configSet makes all changes or none.
func configSet(s *session, args [][]byte) {
	changes, err := s.server.changes(args[2:])
	if err != "" {
		s.refuse(err)
		return
	}
	s.server.config.change(changes)
	s.ok()
}

// changes reads names and values. It returns an error's text, or "": of names that cannot be set
// before that of values, as redis-server does.
func (s *server) changes(args [][]byte) (changes []change, err string) {
	if len(args)%2 != 0 {
		return nil, "ERR syntax error"
	}
	failed := func(name, why string) string {
		return "ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + why
	}
	names := make(map[string]bool)
	for i := 0; i < len(args) && err == ""; i += 2 {
		switch name := lower(args[i]); {
		case !settable(name) && !s.config.has(name):
			return nil, "ERR Unknown option or number of arguments for CONFIG SET - '" + string(args[i]) + "'"
		case !settable(name):
			err = failed(string(args[i]), "can't set immutable config")
		case names[name]:
			err = failed(string(args[i]), "duplicate parameter")
		default:
			names[name] = true
		}
	}
	for i := 0; i < len(args) && err == ""; i += 2 {
		c, why := s.prepare(lower(args[i]), string(args[i+1]))
		if why != "" {
			err = failed(c.name, why)
		}
		changes = append(changes, c)
	}
	return changes, err
}

func settable(name string) bool {
	switch name {
	case "maxmemory", "requirepass", "notify-keyspace-events", "appendfsync", "timeout", "maxclients":
		return true
	}
	return slices.Contains(ignored, name)
}

// prepare looks at a setting that may be set, and says why it may not have that value, or "".
func (s *server) prepare(name, value string) (c change, why string) {
	c = change{name: name, value: value}
	switch name {
	case "maxmemory":
		n, err := parseSize(value)
		if err != nil {
			return c, "argument must be a memory value"
		}
		c.value = strconv.FormatInt(n, 10)
		c.apply = func() { s.maxMemory.Store(n) }
	case "notify-keyspace-events":
		e, ok := store.ParseEvents(value)
		if !ok {
			return c, "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
		}
		c.value = e.String()
		c.apply = func() {
			for _, sh := range s.shards {
				_ = sh.loop.Post(func() { sh.db.Events = e })
			}
		}
	case "timeout":
		c.apply, why = s.prepareTimeout(value)
	case "maxclients":
		c.apply, why = s.prepareMaxClients(value)
	case "appendfsync":
		if value != "always" && value != "everysec" && value != "no" {
			return c, "argument(s) must be one of the following: everysec, always, no"
		}
		c.apply = func() { s.setFsync(value) }
	}
	return c, why
}
