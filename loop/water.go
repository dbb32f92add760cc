package loop

// water is what a connection wants to know about its pending output.
type water struct {
	mark      int
	onHigh    func()
	onFlushed func()
	high      bool // the mark was passed, and the output has not been flushed since
	waited    bool // output has had to wait, and has not been flushed since
}

// OnHighWater has f run on the loop when a turn ends with more than n bytes of output pending: the time to stop
// producing. It runs once, and again only after the output was flushed. There is one such hook; nil removes it. A panic
// in f closes c. A negative n panics.
func (c *Conn) OnHighWater(n int, f func()) {
	c.loop.owner.Check("Conn.OnHighWater")
	if n < 0 {
		panic("loop: Conn.OnHighWater with a negative mark")
	}
	w := c.hooks()
	w.mark, w.onHigh = n, f
}

// OnFlushed has f run on the loop whenever output that had to wait has all been taken by the system: the time to produce
// more. There is one such hook; nil removes it. A panic in f closes c.
func (c *Conn) OnFlushed(f func()) {
	c.loop.owner.Check("Conn.OnFlushed")
	c.hooks().onFlushed = f
}

func (c *Conn) hooks() *water {
	if c.water == nil {
		c.water = new(water)
	}
	return c.water
}

// checkWater is called after output was written.
func (c *Conn) checkWater() {
	w := c.water
	if c.state != stateOpen {
		return
	}
	switch {
	case c.out.size == 0 && w.waited:
		w.high, w.waited = false, false
		c.callHook(w.onFlushed)
	case c.out.size > 0:
		w.waited = true
		if c.out.size > w.mark && !w.high {
			w.high = true
			c.callHook(w.onHigh)
		}
	}
}

// callHook runs f as c's code.
func (c *Conn) callHook(f func()) {
	if f == nil {
		return
	}
	c.loop.current = c
	defer c.loop.rescue()
	f()
	c.loop.returned = true
	c.loop.current = nil // what runs next, in this batch of timers, may be the loop's own
}
