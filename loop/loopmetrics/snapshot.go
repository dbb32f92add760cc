package loopmetrics

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

const (
	// patience is how long a loop may take to answer. One that is blocked is shown as that.
	patience = 300 * time.Millisecond

	// maxSeen is how many connections of a loop are looked at for one snapshot: some hundred
	// microseconds of its time. Where there are more, the next snapshot goes on after them.
	maxSeen = 5000

	// maxShown is how many rows each list has.
	maxShown = 10
)

// A snapshot is what the page shows.
type snapshot struct {
	Time      time.Time  `json:"time"`
	ReadOnly  bool       `json:"readOnly"`
	Accepted  uint64     `json:"accepted"`
	Refused   uint64     `json:"refused"`
	Closed    uint64     `json:"closed"`
	Evicted   uint64     `json:"evicted"`
	Cut       uint64     `json:"cut"`
	Panics    uint64     `json:"panics"`
	HeldBack  uint64     `json:"heldBack"`
	Moved     uint64     `json:"moved"`
	Buffered  float64    `json:"buffered"` // of Server.Limits.MaxBuffered, in percent
	Shaken    uint64     `json:"handshakes"`
	Unshaken  uint64     `json:"handshakesFailed"`
	Offloaded int        `json:"offloaded"`
	Waiting   int        `json:"offloadWaiting"`
	Loops     []loopView `json:"loops"`
}

// A loopView is one loop. Times are in milliseconds.
type loopView struct {
	Conns    int        `json:"conns"`
	Messages uint64     `json:"messages"`
	BytesIn  uint64     `json:"bytesIn"`
	BytesOut uint64     `json:"bytesOut"`
	Timers   int        `json:"timers"`
	Fired    uint64     `json:"fired"`
	Mailbox  int        `json:"mailbox"`
	Lag      float64    `json:"lag"`
	Turn     float64    `json:"turn"`
	Wait     float64    `json:"socketWait"`
	Busy     float64    `json:"busy"`
	Blocked  uint64     `json:"blocked"`
	Answered bool       `json:"answered"` // or it is blocked, and what follows is missing
	Seen     int        `json:"seen"`     // connections that were looked at
	Next     int        `json:"-"`        // the place of the loop's list to go on from
	Rings    []ringView `json:"rings"`
	Slow     []slowView `json:"slow"`
	Largest  []connView `json:"largest"` // those that hold the most bytes
	Slowest  []connView `json:"slowest"` // those whose output has not moved for longest
	Silent   []connView `json:"silent"`  // those that have said nothing for longest
}

// A ringView is a level of the wheel: the slots that have timers, counted from the hand on.
type ringView struct {
	Span   float64 `json:"span"` // of a slot
	Slots  int     `json:"slots"`
	Ahead  []int   `json:"ahead"`
	Timers int     `json:"timers"`
}

type slowView struct {
	Ago     float64 `json:"ago"`
	Took    float64 `json:"took"`
	Conn    uint64  `json:"conn"`
	Handler string  `json:"handler"`
	Work    string  `json:"work"`
}

type connView struct {
	ID       uint64  `json:"id"`
	Remote   string  `json:"remote"`
	Handler  string  `json:"handler"`
	Age      float64 `json:"age"`
	Silent   float64 `json:"silent"`
	Stalled  float64 `json:"stalled"`
	Pending  int     `json:"pending"`
	Buffered int     `json:"buffered"`
	Paused   bool    `json:"paused"`
}

// milliseconds rounds to a microsecond.
func milliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// A looker takes snapshots, one at a time.
type looker struct {
	server *loop.Server
	most   int // connections of a loop that are looked at: maxSeen
	mu     sync.Mutex
	from   map[int]int // where each loop's next look begins
}

// snapshot asks all loops at once.
func (k *looker) snapshot() snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.server.Stats()
	s := snapshot{
		Time: time.Now(), Accepted: st.Accepted, Refused: st.Refused, Closed: st.Closed, Evicted: st.ClosedBy["idle"],
		Cut: st.Cut, Panics: st.Panics, HeldBack: st.HeldBack, Moved: st.Moved,
		Buffered: 100 * float64(st.Buffered) / float64(max(1, bufferedLimit(k.server))),
		Shaken:   st.Handshakes, Unshaken: st.HandshakesFailed,
		Offloaded: st.Offloaded, Waiting: st.OffloadedWaiting,
		Loops: make([]loopView, len(st.Loops)),
	}
	if k.from == nil {
		k.from = make(map[int]int)
	}
	loops := k.server.Loops()
	var all sync.WaitGroup
	for i := range s.Loops {
		v := &s.Loops[i]
		v.count(&st.Loops[i], in.SlowTurns(loops[i]), s.Time)
		from := k.from[i]
		all.Go(func() {
			seen, answered := ask(loops[i], func(l *loop.Loop) loopView { return lookAt(l, from, k.most) })
			if answered {
				v.add(&seen)
			}
		})
	}
	all.Wait()
	for i, v := range s.Loops {
		if v.Answered {
			k.from[i] = v.Next
		}
	}
	return s
}

// ask runs f on l and waits for what it returns, for as long as is worth it.
func ask[T any](l *loop.Loop, f func(*loop.Loop) T) (answer T, ok bool) {
	ch := make(chan T, 1)
	if l.Post(func() { ch <- f(l) }) != nil {
		return answer, false
	}
	return await(ch)
}

// await waits for the answer of a loop, for as long as is worth it.
func await[T any](ch <-chan T) (answer T, ok bool) {
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case answer = <-ch:
		return answer, true
	case <-t.C:
		return answer, false
	}
}

// bufferedLimit returns Server.Limits.MaxBuffered, which Start fills in; 0 before.
func bufferedLimit(s *loop.Server) int {
	if s.Loops() == nil {
		return 0
	}
	return s.Limits.MaxBuffered
}

// Package loop sets these for this package.
var (
	in       = inside.Take[inside.ForMetrics[*loop.Conn, *loop.Loop]]()
	measured = inside.Take[inside.Meter[*loop.Loop, meter.Record]]().Read
)

// count takes what any goroutine can see.
func (v *loopView) count(st *loop.LoopStats, slow []inside.SlowTurn, now time.Time) {
	*v = loopView{
		Conns: st.Conns, Messages: st.Messages, BytesIn: st.BytesIn, BytesOut: st.BytesOut, Timers: st.Timers,
		Fired: st.Fired, Mailbox: st.Mailbox, Lag: milliseconds(st.Lag), Turn: milliseconds(st.Turn), Wait: milliseconds(st.SocketWait),
		Busy: milliseconds(st.Busy), Blocked: st.Blocked,
	}
	for _, s := range slow {
		v.Slow = append(v.Slow, slowView{milliseconds(now.Sub(s.Began)), milliseconds(s.Took), s.Conn, s.Handler, s.Work})
	}
}

// add takes what the loop has answered.
func (v *loopView) add(seen *loopView) {
	v.Answered, v.Seen, v.Next, v.Rings = true, seen.Seen, seen.Next, seen.Rings
	v.Largest, v.Slowest, v.Silent = seen.Largest, seen.Slowest, seen.Silent
}

// lookAt runs on the loop.
func lookAt(l *loop.Loop, from, most int) (v loopView) {
	now := l.Now()
	v.Rings = rings(l)
	held := top{weight: func(c *inside.ConnInfo) int64 { return int64(c.Pending + c.Buffered) }}
	stalled := top{weight: func(c *inside.ConnInfo) int64 {
		if c.Pending == 0 {
			return 0
		}
		return int64(now.Sub(c.LastWrite))
	}}
	silent := top{weight: func(c *inside.ConnInfo) int64 { return int64(now.Sub(c.LastRead)) }}
	conns, next := in.ConnsFrom(l, from, most)
	v.Next = next
	for c := range conns {
		v.Seen++
		info := in.Info(c)
		held.add(&info)
		stalled.add(&info)
		silent.add(&info)
	}
	v.Largest, v.Slowest, v.Silent = held.views(now), stalled.views(now), silent.views(now)
	return v
}

func rings(l *loop.Loop) (views []ringView) {
	wheel, st := in.Wheel(l)
	for level, r := range wheel {
		v := ringView{Span: milliseconds(r.Span), Slots: 64, Timers: st.Levels[level], Ahead: []int{}}
		for ahead := range v.Slots {
			if s := (r.Hand + ahead) % v.Slots; r.Occupied>>s&1 != 0 {
				v.Ahead = append(v.Ahead, ahead)
			}
		}
		views = append(views, v)
	}
	return views
}

// A top keeps the heaviest connections of those that it is shown, without those that weigh nothing.
type top struct {
	weight func(*inside.ConnInfo) int64
	kept   []inside.ConnInfo
}

func (t *top) add(c *inside.ConnInfo) {
	w := t.weight(c)
	n := len(t.kept)
	if w <= 0 || n == maxShown && w <= t.weight(&t.kept[n-1]) {
		return
	}
	if n == maxShown {
		t.kept = t.kept[:n-1]
	}
	at, _ := slices.BinarySearchFunc(t.kept, w, func(k inside.ConnInfo, w int64) int {
		if t.weight(&k) > w {
			return -1
		}
		return 1
	})
	t.kept = slices.Insert(t.kept, at, *c)
}

func (t *top) views(now time.Time) (views []connView) {
	for _, c := range t.kept {
		v := connView{
			ID: c.ID, Remote: c.Remote.String(), Handler: c.Handler, Age: milliseconds(now.Sub(c.Opened)),
			Silent: milliseconds(now.Sub(c.LastRead)), Pending: c.Pending, Buffered: c.Buffered, Paused: c.Paused,
		}
		if c.Pending > 0 {
			v.Stalled = milliseconds(now.Sub(c.LastWrite))
		}
		views = append(views, v)
	}
	return views
}
