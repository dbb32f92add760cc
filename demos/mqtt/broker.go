package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

// Config says what a broker allows. The zero of a field means its default.
type Config struct {
	MaxPacket        int           // bytes of one packet; 0: 256 KiB; anyPacket: whatever the format allows
	MaxPending       int           // bytes that wait in the socket of a slow client before QoS 0 is dropped, and payloads of QoS 1 and 2 unacknowledged before more are queued; 0: 256 KiB
	MaxQueue         int           // messages of QoS 1 and 2 that wait for one client; 0: 1,000
	MaxQueueBytes    int           // bytes of their payloads, from which on no more wait; 0: 1 MiB
	MaxInflight      int           // messages of QoS 1 and 2 under way in each direction; 0: 100
	MaxAlias         int           // topic aliases of a client in each direction; 0: 16
	MaxSubscriptions int           // of one client; long filters count more than once (weight); 0: 1,000
	MaxRetained      int           // messages; 0: 100,000
	MaxMemory        int           // bytes that sessions, subscriptions, retained and waiting messages take, as budget.go counts them; 0: 1 GiB
	MaxSession       uint32        // seconds that a session outlives its connection; 0: a week
	MaxKeepAlive     uint16        // seconds, told to clients of version 5; 0: what they ask for
	ConnectTimeout   time.Duration // until CONNECT; 0: 10 s

	// Auth decides who may connect. It runs on a goroutine and may block until ctx is done. nil:
	// everybody may.
	Auth func(ctx context.Context, login Login) mqtt.ReasonCode

	// Deny are topics and filters that no client may use.
	Deny []string
}

// anyPacket is the longest packet that there is. Clients are not told of it as a limit.
const anyPacket = 1<<28 + 4

// Login is what a client says of itself.
type Login struct {
	ClientID    string
	HasUsername bool
	Username    string
	Password    []byte
	Remote      net.Addr
}

func (cfg *Config) denied(topic string) bool { return slices.Contains(cfg.Deny, topic) }

// mayPublish returns Success if clients may publish to a topic a message whose payload and properties
// have size bytes. A bridge of mosquitto tells of itself
// below $SYS.
func (sh *shard) mayPublish(topic string, size int, retain bool) mqtt.ReasonCode {
	cfg := &sh.b.cfg
	bridge := strings.HasPrefix(topic, "$SYS/broker/connection/") && strings.HasSuffix(topic, "/state")
	switch {
	case strings.HasPrefix(topic, "$SYS/") && !bridge, strings.HasPrefix(topic, "$share/"), cfg.denied(topic):
		return mqtt.NotAuthorized
	case !retain:
		return mqtt.Success
	}
	old, full := sh.retained.get(topic), sh.budget.full()
	if old == nil && (full || sh.retained.count >= cfg.MaxRetained) || old != nil && full && size > len(old.payload)+len(old.props) {
		return mqtt.QuotaExceeded
	}
	return mqtt.Success
}

// weight is for how many subscriptions one counts: its levels and bytes take memory, and its levels
// time for each message.
func weight(filter string) int { return 1 + strings.Count(filter, "/")/8 + len(filter)/512 }

// checkLevels bounds the depth of the trees, which have a level for each slash.
func checkLevels(topic string) error {
	if strings.Count(topic, "/") > 200 {
		return &mqtt.Error{Code: mqtt.MalformedPacket, Text: "a topic of more than 200 levels"}
	}
	return nil
}

func or[T comparable](v *T, preset T) {
	var zero T
	if *v == zero {
		*v = preset
	}
}

// broker is an MQTT broker on the loops of one server.
type broker struct {
	cfg    Config
	srv    *loop.Server
	shards []*shard
	stamp  atomic.Uint64
	kept   atomic.Int64 // see budget

	stateComes bool // clients wait for load
	loaded     bool
	counts     struct{ clients, sessions, subscriptions, sent, dropped atomic.Int64 }
	start      time.Time
}

// newBroker makes a broker whose server has no address yet. Start starts it.
func newBroker(cfg Config, srv *loop.Server) *broker {
	or(&cfg.MaxPacket, 256<<10)
	or(&cfg.MaxPending, 256<<10)
	or(&cfg.MaxQueue, 1000)
	or(&cfg.MaxQueueBytes, 1<<20)
	or(&cfg.MaxInflight, 100)
	or(&cfg.MaxAlias, 16)
	or(&cfg.MaxSubscriptions, 1000)
	or(&cfg.MaxRetained, 100_000)
	or(&cfg.MaxMemory, 1<<30)
	or(&cfg.MaxSession, 7*24*3600)
	or(&cfg.ConnectTimeout, 10*time.Second)
	b := &broker{cfg: cfg, srv: srv}
	srv.Accept = b.accept
	srv.Codec = mqtt.Codec{Max: cfg.MaxPacket}
	srv.Hooks.OnClosing = onClosing
	srv.OnStart = b.onStart
	if srv.NumLoops == 0 {
		srv.NumLoops = max(1, runtime.GOMAXPROCS(0)-1)
	}
	b.shards = make([]*shard, srv.NumLoops)
	return b
}

func (b *broker) onStart(l *loop.Loop) {
	n := len(b.shards)
	sh := &shard{b: b, l: l, index: l.Index(), sessions: map[string]*session{}, owners: map[string]*owner{},
		groups: map[string]*group{}, seen: make([]uint64, n), buf: make([]byte, 0, 4096), ready: !b.stateComes}
	sh.budget = budget{limit: int64(b.cfg.MaxMemory), sum: &b.kept}
	sh.subs.budget, sh.retained.budget = &sh.budget, &sh.budget
	b.shards[sh.index] = sh
	l.Every(statsEvery, func() { sh.unlessFrozen(sh.tick) })
}

// statsEvery is how often $SYS topics are published and counters added up.
const statsEvery = 10 * time.Second

// webSocket returns the codec of MQTT over WebSocket (section 6).
func (b *broker) webSocket() codec.Codec {
	return codec.Stack{
		Outer: &websocket.Codec{Binary: true, Protocols: []string{"mqtt", "mqttv3.1"}, Origins: []string{"*"}, MaxMessage: max(64<<10, b.cfg.MaxPacket)},
		Inner: mqtt.Codec{Max: b.cfg.MaxPacket},
	}
}

// Start starts the server. Shards are there before the first connection is.
func (b *broker) Start(ctx context.Context) error {
	b.start = time.Now()
	return b.srv.Start(ctx)
}

func newClientID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it does not fail
	return fmt.Sprintf("auto-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// splitShared returns the name of the group and the filter of topics of a shared subscription. The
// name of another is empty.
func splitShared(filter string) (name, topics string) {
	group, rest, ok := mqtt.Shared([]byte(filter))
	if !ok {
		return "", filter
	}
	return string(group), string(rest)
}

// tick runs on each loop every few seconds.
func (sh *shard) tick() {
	b := sh.b
	b.counts.sent.Add(int64(sh.sent))
	b.counts.dropped.Add(int64(sh.dropped))
	sh.sent, sh.dropped = 0, 0
	now, newest := sh.l.Now(), b.stamp.Load()
	old := sh.swept
	sh.swept = newest
	sh.retained.sweep(func(m *message) bool { return m.expired(now) || len(m.payload) == 0 && m.stamp <= old })
	if sh.index == 0 {
		sh.publishStats()
	}
}

// publishStats publishes what brokers tell of themselves below $SYS.
func (sh *shard) publishStats() {
	b := sh.b
	stats := b.srv.Stats()
	for _, s := range []struct {
		topic string
		value any
	}{
		{"version", "loopwheel mqtt"},
		{"uptime", fmt.Sprint(int64(math.Round(time.Since(b.start).Seconds())), " seconds")},
		{"clients/connected", b.counts.clients.Load()},
		{"clients/total", b.counts.sessions.Load()},
		{"subscriptions/count", b.counts.subscriptions.Load()},
		{"retained messages/count", sh.retained.count},
		{"messages/received", stats.Messages},
		{"messages/sent", b.counts.sent.Load()},
		{"publish/messages/dropped", b.counts.dropped.Load()},
		{"bytes/received", stats.BytesIn},
		{"bytes/sent", stats.BytesOut},
	} {
		sh.publish(&message{topic: "$SYS/broker/" + s.topic, payload: fmt.Append(nil, s.value), retain: true})
	}
}
