package handler_test

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// modelCall is what must become of a call.
type modelCall struct {
	id       uint64
	deadline time.Time
	over     bool  // it has ended, or was cancelled
	want     error // how it must end now, if it does
	ended    int
}

// callsModel does at random what can be done with calls, and knows what must come of it. Its ids
// are so short that they are used again and again.
type callsModel struct {
	*caller
	t       *testing.T
	rng     *rand.Rand
	timeout func(*rand.Rand) time.Duration
	named   bool
	calm    bool // most calls are answered soon
	pending []*modelCall
	stats   handler.CallStats
}

const modelMax, modelTimeout = 100, 300 * time.Millisecond

func (m *callsModel) begin() {
	d := m.timeout(m.rng)
	k := &modelCall{deadline: time.Now().Add(d)}
	if d <= 0 {
		k.deadline = time.Now().Add(modelTimeout)
	}
	var err error
	if k.id = m.rng.Uint64N(256); m.named {
		err = m.calls.BeginAs(k.id, d, m.done(k))
	} else {
		k.id, err = m.calls.Begin(d, m.done(k))
	}
	used := m.find(k.id) != nil
	switch {
	case m.named && used && errors.Is(err, handler.ErrCallID):
	case len(m.pending) == modelMax && errors.Is(err, handler.ErrTooManyCalls):
	case err == nil && !used && k.id < 256 && len(m.pending) < modelMax:
		m.pending = append(m.pending, k)
		m.stats.Begun++
	default:
		m.t.Fatalf("a call with id %d of %d: %v", k.id, len(m.pending), err)
	}
}

// done checks how a call ends, and does one thing more, as users do.
func (m *callsModel) done(k *modelCall) func(string, error) {
	return func(answer string, err error) {
		k.ended++
		late := time.Since(k.deadline)
		switch {
		case k.ended > 1 || k.over != (k.want == nil && answer == "yes"):
			m.t.Errorf("call %d ended with %q, %v: %+v", k.id, answer, err, *k)
		case err == nil, err == io.EOF && k.want == io.EOF:
		case !errors.Is(err, handler.ErrCallTimeout) || late < 0 || late > time.Millisecond:
			m.t.Errorf("call %d ended with %v, %v after its deadline", k.id, err, late)
		default:
			m.stats.TimedOut++
		}
		m.remove(k)
		if k.want == nil {
			m.act()
		}
	}
}

func (m *callsModel) remove(k *modelCall) {
	k.over = true
	m.pending = slices.DeleteFunc(m.pending, func(other *modelCall) bool { return other == k })
}

func (m *callsModel) find(id uint64) *modelCall {
	for _, k := range m.pending {
		if k.id == id {
			return k
		}
	}
	return nil
}

// act does one thing at random. One of five answers comes to no call, or to one that is over.
func (m *callsModel) act() {
	id := m.rng.Uint64N(300)
	if n := len(m.pending); n > 0 && m.rng.IntN(5) > 0 {
		id = m.pending[m.rng.IntN(n)].id
	}
	begins := 10
	if m.calm {
		begins = 6
	}
	k := m.find(id)
	switch op := m.rng.IntN(20); {
	case op < begins:
		m.begin()
	case op < 13 || k == nil:
		if k != nil {
			m.remove(k)
			m.stats.Answered++
		} else {
			m.stats.Unmatched++
		}
		if took := m.calls.Answer(id, "yes"); took != (k != nil) {
			m.t.Fatalf("answer to %d taken: %v", id, took)
		}
	case op == 13:
		m.remove(k)
		m.stats.Cancelled++
		if !m.calls.Cancel(id) {
			m.t.Fatalf("%d not cancelled", id)
		}
	}
}

// check compares what is under way, after time has passed.
func (m *callsModel) check() {
	for _, k := range m.pending {
		if time.Since(k.deadline) > time.Millisecond {
			m.t.Fatalf("call %d is under way, %v after its deadline", k.id, time.Since(k.deadline))
		}
	}
	m.stats.Pending = len(m.pending)
	if got := m.calls.Stats(); got != m.stats {
		m.t.Fatalf("%+v, want %+v", got, m.stats)
	}
}

// Whatever happens in whatever order, each call ends once, when it must.
func TestCallsModel(t *testing.T) {
	oneOf := func(d ...time.Duration) func(*rand.Rand) time.Duration {
		return func(rng *rand.Rand) time.Duration { return d[rng.IntN(len(d))] }
	}
	anyTimeout := func(rng *rand.Rand) time.Duration { return 1 + time.Duration(rng.Int64N(int64(time.Second))) }
	for name, m := range map[string]*callsModel{
		"one timeout":    {timeout: oneOf(0)},
		"three timeouts": {timeout: oneOf(0, time.Millisecond, 2*time.Second)},
		"any timeout":    {timeout: anyTimeout},
		"seldom shorter": {timeout: func(rng *rand.Rand) time.Duration {
			return time.Second - time.Duration(rng.IntN(20)/19)*anyTimeout(rng)/2
		}},
		"some for ever": {timeout: oneOf(0, -1, math.MaxInt64, math.MaxInt64-1, time.Millisecond)},
		"seldom longer": {timeout: func(rng *rand.Rand) time.Duration {
			return time.Duration(rng.IntN(30)/29)*anyTimeout(rng) + 200*time.Millisecond
		}},
		"named": {timeout: anyTimeout, named: true},
		"few left": {calm: true, timeout: func(rng *rand.Rand) time.Duration {
			return 3*time.Second - time.Duration(rng.IntN(10)/9)*anyTimeout(rng)*2
		}},
	} {
		t.Run(name, func(t *testing.T) { bubble(t, m.run) })
	}
}

func (m *callsModel) run(t *testing.T) {
	m.t, m.rng = t, rand.New(rand.NewPCG(testkit.Seed(t, 16), 1))
	m.caller = newCaller(t, handler.CallConfig{IDBits: 8, Max: modelMax, Timeout: modelTimeout})
	for range 800 {
		var d int64
		m.do(func() {
			for range m.rng.IntN(12) {
				m.act()
			}
			d = m.rng.Int64N(int64(20 * time.Millisecond))
		})
		testkit.Pass(time.Duration(d))
		m.do(m.check)
	}
	var left []*modelCall
	m.do(func() {
		left = slices.Clone(m.pending)
		for _, k := range left {
			k.want = io.EOF
		}
	})
	m.peer.Close()
	m.do(func() {
		for _, k := range left {
			if k.ended != 1 {
				t.Errorf("call %d ended %d times when the connection closed", k.id, k.ended)
			}
		}
		m.stats.Failed = uint64(len(left))
		m.check()
	})
	if m.stats.TimedOut < 300 && !m.calm || m.stats.Answered < 300 || m.stats.Cancelled < 50 || m.stats.Failed == 0 && !m.calm {
		t.Errorf("not enough happened: %+v", m.stats)
	}
}
