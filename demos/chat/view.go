package main

import (
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A view is what the page shows of the server.
type view struct {
	Uptime   int64      `json:"uptime"` // seconds
	Conns    int        `json:"conns"`
	Rooms    int        `json:"rooms"`
	Said     uint64     `json:"said"`
	Messages uint64     `json:"messages"`
	BytesOut uint64     `json:"out"`
	Kicked   uint64     `json:"kicked"`
	Dead     uint64     `json:"dead"`
	Flooded  uint64     `json:"flooded"`
	Fired    uint64     `json:"fired"`
	Loops    []loopView `json:"loops"`
}

// loopView is one loop, and how many timers are on each level of its wheel.
type loopView struct {
	Conns  int   `json:"conns"`
	Timers int   `json:"timers"`
	Levels []int `json:"levels"`
}

// show sends the view to those who watch. Each loop looks at its own wheel, and the last one
// broadcasts.
func (ch *chat) show() {
	if ch.watchers.Len() == 0 {
		return
	}
	v := ch.view()
	loops := ch.server.Loops()
	var mu sync.Mutex
	missing := len(loops)
	for i, l := range loops {
		err := l.Post(func() {
			lv := lookAt(l)
			mu.Lock()
			defer mu.Unlock()
			v.Loops[i] = lv
			if missing--; missing == 0 {
				_ = ch.watchers.Broadcast(event{Type: "view", View: v}.encode()) // whom it does not reach gets the next
			}
		})
		if err != nil {
			return // busy, or ending: this one is left out
		}
	}
}

func lookAt(l *loop.Loop) loopView {
	w := l.WheelStats()
	return loopView{Conns: l.NumConns(), Timers: w.Pending, Levels: w.Levels[:]}
}

func (ch *chat) view() *view {
	st := ch.server.Stats()
	return &view{
		Uptime: int64(time.Since(ch.began).Seconds()), Conns: st.Conns, Rooms: ch.house.stats(), Said: ch.said.Load(),
		Messages: st.Messages, BytesOut: st.BytesOut, Fired: st.Fired,
		Kicked: ch.kicked.Load(), Dead: ch.dead.Load(), Flooded: ch.flooded.Load(),
		Loops: make([]loopView, len(st.Loops)),
	}
}
