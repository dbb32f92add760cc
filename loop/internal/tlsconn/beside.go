package tlsconn

import (
	"slices"
	"sync"
	"sync/atomic"
)

// maxUnseen is how many handshakes of a loop may wait for their peers without its knowledge.
const maxUnseen = 16

// unseen is handshakes that wait for their peers behind what their coroutines have sent themselves.
// The loop is not woken for that: it hears of them when it has something for them, or parks another
// one. That spares a handshake one of the times that a loop falls asleep and wakes.
type unseen struct {
	room atomic.Int32 // how many more may wait for their peers

	mu   sync.Mutex
	list []*handshake // the oldest first

	noticing bool // the loop's: it is about to hear of all
}

// A phase is how far a coroutine has got that computes beside the loop. unseen.mu guards it.
type phase uint8

const (
	computing phase = iota
	wanted          // and the loop has something for it: it must be told
	unnoticed       // in unseen.list
)

// add has h wait without the loop's knowledge. False: the loop must be told.
func (u *unseen) add(h *handshake) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h.phase == wanted || len(u.list) >= min(maxUnseen, int(u.room.Load())) {
		return false
	}
	h.phase = unnoticed
	u.list = append(u.list, h)
	return true
}

// want reports whether h waits, which the loop knows from now on. If not the loop will be told.
func (u *unseen) want(h *handshake) (waits bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h.phase != unnoticed {
		h.phase = wanted
		return false
	}
	i := slices.Index(u.list, h)
	u.list = slices.Delete(u.list, i, i+1)
	return true
}

// next has the loop know of the oldest. nil: there is none.
func (u *unseen) next() (h *handshake) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.list) > 0 {
		h = u.list[0]
		u.list = slices.Delete(u.list, 0, 1)
	}
	return h
}

// worked is called on the coroutine when it is done with what the loop did not wait for.
func (h *handshake) worked() {
	c, l, co := h.conn, h.conn.loop, h.co
	sent := h.sendAside()
	l.cfg.Workers.done(h)
	if sent && l.unseen.add(h) || l.post(c.stepped) {
		return // the loop may have h go on by now
	}
	h.cancel()
	co.stop() // nobody else will
}

// watch looks at a handshake that computes beside the loop, as long as it does: the user's code may
// take its time.
func (h *handshake) watch() {
	l := h.conn.loop
	h.unwatch = l.after(patience, func() {
		if h.unwatch = nil; l.cfg.Workers.look(h) {
			h.watch()
		}
	})
}

// sendAside sends what the handshake has to say. False: there is something left to do for the loop.
func (h *handshake) sendAside() bool {
	if h.aside == nil || h.over || len(h.out) == 0 || len(h.conn.cur) > 0 {
		return false
	}
	h.quick = h.plain && sealed(h.out)
	h.sending.Lock()
	defer h.sending.Unlock()
	if h.gone.Load() {
		return false
	}
	n, err := h.aside.WriteAside(h.out)
	h.out = h.out[:copy(h.out, h.out[n:])]
	return err == nil && len(h.out) == 0
}

// giveUp has a coroutine that computes come to nothing. It does not use the socket any more.
func (h *handshake) giveUp() {
	h.gone.Store(true)
	h.sending.Lock()
	defer h.sending.Unlock()
	h.cancel()
}

// leaveAlone ends watch.
func (h *handshake) leaveAlone() {
	if h.unwatch != nil {
		h.unwatch()
		h.unwatch = nil
	}
}

// notice looks whether the handshake waits for its peer, if the loop believes that it computes, and
// then goes on as if it had been told.
func (c *Conn) notice() {
	if h := c.hs; h.working && c.loop.unseen.want(h) {
		c.stepped()
	}
}

// noticeAll does that for those of which the loop does not know, in the order in which they have
// begun to wait.
func (l *Loop) noticeAll() {
	u := &l.unseen
	if u.noticing {
		return
	}
	u.noticing = true
	for h := u.next(); h != nil; h = u.next() {
		h.conn.stepped()
	}
	u.noticing = false
}
