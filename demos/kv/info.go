package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
)

// redisVersion is the redis-server whose commands and words these are.
const redisVersion = "7.0.15"

func info(s *session, args [][]byte) {
	var sections []string
	for _, a := range args[1:] {
		sections = append(sections, lower(a))
	}
	report := func(stats []store.Stats) []byte {
		return s.version.AppendVerbatim(nil, "txt", s.server.info(sections, sum(stats)))
	}
	if len(s.server.shards) == 1 {
		s.write(report([]store.Stats{s.shard.db.Stats()}))
		return
	}
	stats := make([]store.Stats, len(s.server.shards))
	s.gather(false, func(sh *shard) []byte {
		stats[sh.index] = sh.db.Stats()
		return resp.AppendInt(nil, 0)
	}, func([][]byte) []byte { return report(stats) })
}

func sum(all []store.Stats) (t store.Stats) {
	for _, s := range all {
		t.Keys += s.Keys
		t.Expiring += s.Expiring
		t.Expired += s.Expired
		t.Hits += s.Hits
		t.Misses += s.Misses
		t.Changes += s.Changes
		t.Blocked += s.Blocked
		t.WatchedKeys += s.WatchedKeys
		t.LateMax = max(t.LateMax, s.LateMax)
		t.LateSum += s.LateSum
	}
	return t
}

func (s *server) info(sections []string, t store.Stats) string {
	var b strings.Builder
	section := func(name string, lines ...any) {
		wanted := len(sections) == 0
		for _, want := range sections {
			wanted = wanted || want == strings.ToLower(name) || want == "all" || want == "default" || want == "everything"
		}
		if !wanted {
			return
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", name)
		for i := 0; i < len(lines); i += 2 {
			fmt.Fprintf(&b, "%v:%v\r\n", lines[i], lines[i+1])
		}
	}
	net := s.net.Stats()
	up := time.Since(s.started)
	section("Server", "redis_version", redisVersion, "redis_mode", "standalone", "server_name", "loopwheel/demos/kv",
		"process_id", os.Getpid(), "shards", len(s.shards), "uptime_in_seconds", int(up.Seconds()), "uptime_in_days", int(up.Hours()/24))
	section("Clients", "connected_clients", s.clients.Load(), "blocked_clients", t.Blocked)
	section("Memory", "used_memory", s.usedMemory.Load(), "maxmemory", s.maxMemory.Load(), "maxmemory_policy", "noeviction")
	section("Persistence", s.persistence()...)
	section("Stats", "total_connections_received", net.Accepted, "total_commands_processed", net.Messages,
		"rejected_connections", net.Refused, "total_net_input_bytes", net.BytesIn, "total_net_output_bytes", net.BytesOut,
		"expired_keys", t.Expired, "evicted_keys", 0, "keyspace_hits", t.Hits, "keyspace_misses", t.Misses,
		"expire_late_max_us", t.LateMax.Microseconds(), "expire_late_avg_us", average(t),
		"loop_lag_max_us", net.MaxLag.Microseconds(), "loop_turn_max_us", net.MaxTurn.Microseconds())
	section("Replication", "role", "master", "connected_slaves", 0)
	if t.Keys > 0 {
		section("Keyspace", "db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", t.Keys, t.Expiring))
	} else {
		section("Keyspace")
	}
	return b.String()
}

// average returns how late keys went on average, in microseconds.
func average(t store.Stats) int64 {
	if t.Expired == 0 {
		return 0
	}
	return (t.LateSum / time.Duration(t.Expired)).Microseconds()
}
