//go:build unix

package redisgroup_test

import (
	"strconv"
	"strings"
	"sync"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// A modelMember is a client in the room, over several connections.
type modelMember struct {
	r *modelRoom
	c *client

	mu     sync.Mutex
	joined bool
	from   redisgroup.Position // where it began
	last   redisgroup.Position
	heard  map[redisgroup.Position]string
	texts  map[string]bool
	gaps   []redisgroup.Gap
	hole   bool                // told since the last entry
	fresh  bool                // the first entry that it hears is where it begins
	replay int                 // entries of the past that it has yet to hear
	came   redisgroup.Position // where it joined last
	ended  chan struct{}
}

// join makes a member at any node, with what follows a position, or from now on.
func (r *modelRoom) join(since redisgroup.Position) *modelMember {
	m := &modelMember{r: r, heard: make(map[redisgroup.Position]string), texts: make(map[string]bool)}
	m.connect(since)
	return m
}

func (m *modelMember) connect(since redisgroup.Position) {
	m.c, m.ended = m.r.node().dial(), make(chan struct{})
	if since.IsZero() {
		m.c.say("history room 0")
	} else {
		m.c.say("since room %v", since)
	}
	go m.read(m.c, m.ended)
}

// move reconnects a member to another node, where it gets everything after its last entry.
func (r *modelRoom) move(i int) {
	m := r.members[i]
	m.c.Close()
	<-m.ended
	m.mu.Lock()
	last, joined := m.last, m.joined
	m.mu.Unlock()
	if !joined || last.IsZero() { // it has nothing to ask for
		r.members[i] = r.join(redisgroup.Position{})
		r.gone = append(r.gone, m)
		return
	}
	m.connect(last)
}

func (m *modelMember) read(c *client, ended chan struct{}) {
	defer close(ended)
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return
		}
		m.mu.Lock()
		m.take(strings.Fields(line))
		m.mu.Unlock()
	}
}

func (m *modelMember) take(f []string) {
	switch f[0] {
	case "arrived":
		p, _ := redisgroup.ParsePosition(f[1])
		if f[5] != "err=<nil>" {
			m.r.t.Errorf("arrived: %q", f)
		}
		m.came = p
		m.replay, _ = strconv.Atoi(f[2])
		if !m.joined { // what came while it joined follows
			m.joined, m.from, m.last = true, p, p
			if m.fresh = m.replay > 0; p.IsZero() {
				m.r.t.Error("the room had no beginning")
			}
		} else if f[3] == "gap=true" {
			m.gaps, m.hole = append(m.gaps, redisgroup.Gap{From: m.last}), true
		}
	case "gap":
		from, _ := redisgroup.ParsePosition(f[2])
		m.gaps, m.hole = append(m.gaps, redisgroup.Gap{From: from}), true
	case "msg":
		p, _ := redisgroup.ParsePosition(f[2])
		m.hear(p, f[3])
	}
}

// hear expects the next number, unless a new epoch begins or a gap was reported.
func (m *modelMember) hear(p redisgroup.Position, text string) {
	if m.fresh {
		m.fresh, m.last = false, redisgroup.Position{Epoch: p.Epoch, Number: p.Number - 1}
		m.from = m.last
	}
	next := redisgroup.Position{Epoch: m.last.Epoch, Number: m.last.Number + 1}
	switch {
	case p.Compare(m.last) <= 0:
		m.r.t.Errorf("heard %v after %v", p, m.last)
	case p != next && p.Number != 1 && !m.hole:
		m.r.t.Errorf("heard %v after %v, and no gap was told", p, m.last)
	case m.texts[text]:
		m.r.t.Errorf("heard %s twice", text)
	}
	if m.hole {
		m.gaps[len(m.gaps)-1].To = p
	}
	m.last, m.hole, m.heard[p], m.texts[text] = p, false, text, true
	m.replay = max(0, m.replay-1)
}

// through reports whether the member got the entry at p, joined later, or got a gap instead.
func (m *modelMember) through(p redisgroup.Position, text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	later := p.Compare(m.last) <= 0 || m.hole && p.Compare(m.came) <= 0
	return m.texts[text] || m.joined && m.replay == 0 && later
}

// missed reports whether an entry must have been heard, and was not.
func (m *modelMember) missed(p redisgroup.Position) bool {
	if p.Compare(m.from) <= 0 || m.heard[p] != "" {
		return false
	}
	for _, g := range m.gaps {
		if p.Compare(g.From) > 0 && (g.To.IsZero() || p.Compare(g.To) < 0) {
			return false
		}
	}
	return true
}
