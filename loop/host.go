package loop

import "fmt"

// host makes a Server an engine.Host.
type host Server

// OnTick advances the loop's wheel.
func (h *host) OnTick(i int) { h.loops[i].tick() }

// OnWake does what others have asked the loop for.
func (h *host) OnWake(i int) { h.loops[i].turn() }

// Ended is called on a loop that ends without being asked.
func (h *host) Ended(i int, err error) {
	if err == nil {
		err = fmt.Errorf("loop: event loop %d ended unexpectedly", i)
	}
	select {
	case h.failed <- err:
	default:
	}
	h.loops[i].broke(err)
}
