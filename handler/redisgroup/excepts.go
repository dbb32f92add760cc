package redisgroup

import (
	"sync"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing"
)

// excepts are, by messages of this process, who does not get one when it comes back from Redis.
type excepts struct {
	mu  sync.Mutex
	all map[uint64]except
}

type except struct {
	ref    loop.Ref
	forget timing.Job // as a message that is lost, or whose subscription is, never comes back
}

// publishExcept queues o, which ref does not get when it comes back. That is forgotten when o may
// have been tried for all of Config.PublishTimeout, and been under way for as long.
func (h *Hub) publishExcept(o *outgoing, ref loop.Ref) error {
	if ref == (loop.Ref{}) || h.find(o.channel) == nil {
		return h.publish(o)
	}
	seq := o.seq
	h.excepts.mu.Lock()
	forget, _ := h.timers.AfterFunc(2*h.cfg.PublishTimeout, func() { h.excepted(seq) })
	h.excepts.all[seq] = except{ref, forget}
	h.excepts.mu.Unlock()
	err := h.publish(o)
	if err != nil {
		h.excepted(seq)
	}
	return err
}

// excepted returns who does not get a message, and forgets it.
func (h *Hub) excepted(seq uint64) loop.Ref {
	h.excepts.mu.Lock()
	defer h.excepts.mu.Unlock()
	e := h.excepts.all[seq]
	e.forget.Stop()
	delete(h.excepts.all, seq)
	return e.ref
}
