package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

const numLifeOps = 25

// act does something at random: to its own connection, or to another one of the loop, which may
// have closed.
func (l *life) act() {
	if l.r.IntN(4) == 0 {
		if n := len(l.place.lives); n > 0 {
			other := l.place.lives[l.r.IntN(n)]
			l.numbers[0].Add(1)
			other.do(l.r.IntN(numLifeOps))
			return
		}
	}
	l.do(l.r.IntN(numLifeOps))
}

// do is one of the things that there are to do, by number. The rare ones are those that end
// something.
func (l *life) do(op int) {
	l.numbers[op].Add(1)
	switch rare := l.r.IntN(30) == 0; op {
	case 0, 1, 2:
		l.send()
	case 3:
		l.write()
	case 4, 5:
		l.setTimer()
	case 6:
		l.setHook()
	case 7:
		l.changeTimer()
	case 8:
		l.pauseRead()
	case 9, 10:
		l.resumeRead()
	case 11:
		l.tell()
	case 12:
		l.offload()
	case 13:
		l.c.OnHighWater(l.r.IntN(30<<10), l.hook("OnHighWater", true))
	case 14:
		l.c.OnFlushed(l.hook("OnFlushed", false))
	case 15:
		l.c.OnEOF(l.hook("OnEOF", false))
	case 16:
		l.c.SetIdleTimeout(l.d(60))
	case 17:
		l.c.SetBusy(l.r.IntN(2) == 0)
	case 18:
		l.afterClose()
	case 19:
		l.c.SetCodec(codec.Lines{Max: 100<<10 + l.r.IntN(10)})
	case 20:
		l.onLoop()
	case 21:
		l.look()
	case 22:
		if rare {
			l.close()
		}
	case 23:
		if rare {
			l.writeEnded = l.writeEnded || !l.isClosing()
			l.c.CloseWrite()
		}
	case 24:
		l.moveTo()
	}
}

// moveTo moves it to one of the loops. From then on nothing else of its loop knows it.
func (l *life) moveTo() {
	to, closing, moves := l.r.IntN(len(l.places)), l.isClosing(), l.moves.Load()
	from := l.place
	err := l.c.MoveTo(l.server.Loops()[to], func(c *loop.Conn) {
		l.place = &l.places[to]
		defer l.begin("what follows a move", false)()
		if c.Loop().Index() != to || l.moves.Load() != moves+1 {
			l.wrong("it is on loop %d after move %d, want %d and %d", c.Loop().Index(), l.moves.Load(), to, moves+1)
		}
		l.moving = false
		l.live()
		l.body()
	})
	switch {
	case err == nil && !closing && !l.moving:
		l.moving = true
		l.moves.Add(1)
		from.lives = slices.DeleteFunc(from.lives, func(other *life) bool { return other == l })
	case closing != (err == loop.ErrClosed) || err == nil:
		l.wrong("MoveTo: %v; it is closing: %v, and moving: %v", err, closing, l.moving)
	}
}

// send sends a line. What OnHighWater sends within that comes after it.
func (l *life) send() {
	n, end := l.out, l.endOfOutput()
	l.out++
	err := l.c.Send(fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", l.r.IntN(1<<l.r.IntN(17)))))
	l.sent(n, end, err)
}

func (l *life) write() {
	n, end := l.out, l.endOfOutput()
	l.out++
	_, err := l.c.Write(fmt.Appendf(nil, "%d \n", n))
	l.sent(n, end, err)
}

// endOfOutput reports whether nothing can be sent any more.
func (l *life) endOfOutput() bool { return l.writeEnded || l.isClosing() && !l.last }

// sent looks at what came of sending line n. ended: it was after the end.
func (l *life) sent(n int, ended bool, err error) {
	switch {
	case err == nil && ended:
		l.wrong("line %d was sent after the end", n)
	case err == nil:
		return
	case l.out != n+1:
		l.wrong("line %d was not sent, %v, and %d after it were", n, err, l.out-n-1)
	case err == loop.ErrSlowConsumer && !ended && !l.last && !l.known:
		l.known, l.cause = true, err
	case err == loop.ErrClosed && !ended && !l.isClosing():
		l.wrong("line %d: %v", n, err)
	}
	l.out = n
}

func (l *life) setTimer() {
	d := l.d(3)
	timer := &lifeTimer{due: time.Now().Add(d)}
	fired := func() {
		defer l.begin("a timer", false)()
		if timer.stopped || time.Now().Before(timer.due) {
			l.wrong("a timer fires; stopped: %v, too early by %v", timer.stopped, time.Until(timer.due))
		}
		l.body()
	}
	if l.r.IntN(3) == 0 {
		timer.Timer = l.c.Every(d+1, fired)
	} else {
		timer.Timer = l.c.AfterFunc(d, fired)
	}
	l.timers = append(l.timers, timer)
}

func (l *life) setHook() {
	timer, kind := &lifeTimer{}, loop.Idle(l.r.IntN(4))
	timer.Timer = l.c.OnIdle(kind, l.second/100+l.d(5), func(n int) {
		defer l.begin("a hook", false)()
		if timer.stopped || n != 1 && n != timer.n+1 {
			l.wrong("a hook fires as number %d after %d; stopped: %v", n, timer.n, timer.stopped)
		}
		timer.n = n
		l.body()
	})
	l.timers = append(l.timers, timer)
}

// changeTimer stops or moves one.
func (l *life) changeTimer() {
	if len(l.timers) == 0 {
		return
	}
	i := l.r.IntN(len(l.timers))
	timer := l.timers[i]
	if l.r.IntN(2) == 0 {
		d := l.second/100 + l.d(5)
		if due := time.Now().Add(d); timer.Reset(d) {
			timer.due = due
		}
		return
	}
	if pending := timer.Pending(); timer.Stop() != pending || pending && l.closed {
		l.wrong("a timer was pending: %v, and was stopped or not; closed: %v", pending, l.closed)
	}
	timer.stopped = true
	l.timers = slices.Delete(l.timers, i, i+1)
}

func (l *life) pauseRead() {
	l.paused = true
	l.c.PauseRead()
}

func (l *life) resumeRead() {
	l.paused = false
	l.c.ResumeRead()
}

func (l *life) tell() {
	n, closing := l.tells, l.isClosing()
	err := l.c.Ref().Tell(func(c *loop.Conn) {
		defer l.begin("a Tell", false)()
		if c != l.c {
			l.wrong("a Tell for connection %d", c.ID())
		}
		l.isOrdered("Tell", &l.told, n)
		l.body()
	})
	switch {
	case err == nil && !closing:
		l.tells++
	case closing != (err == loop.ErrClosed) && err != loop.ErrServerClosed && err != loop.ErrMailboxFull:
		l.wrong("Tell: %v; it is closing: %v", err, closing)
	}
}

func (l *life) offload() {
	n := l.jobs
	err := loop.Offload(l.c, func(context.Context) int { return n }, func(_ *loop.Conn, v int) {
		defer l.begin("what follows a job", false)()
		l.isOrdered("job", &l.thens, v)
		l.body()
	})
	if err == nil {
		l.jobs++
	}
}

func (l *life) hook(what string, nested bool) func() {
	if l.r.IntN(4) == 0 {
		return nil
	}
	return func() {
		defer l.begin(what, nested)()
		l.body()
	}
}

func (l *life) afterClose() {
	n, late := l.after, l.closed // added late, it runs at once
	if !late {
		l.after++
	}
	ran := false
	l.c.AfterClose(func(err error) {
		if ran = true; !l.closed || err != l.reason {
			l.wrong("AfterClose with %v; OnClose was called: %v, with %v", err, l.closed, l.reason)
		}
		if !late {
			l.isOrdered("AfterClose", &l.ended, n)
		}
		defer l.enter()()
		l.act()
	})
	if ran != late {
		l.wrong("AfterClose ran at once: %v; closed: %v", ran, late)
	}
}

// onLoop has something done by a function of the loop.
func (l *life) onLoop() {
	if l.moving {
		return
	}
	moves := l.moves.Load()
	f := func() {
		if l.moves.Load() != moves {
			return // it may be elsewhere
		}
		if l.place.depth > 0 {
			l.wrong("a function of the loop within a callback")
		}
		defer l.enter()()
		l.act()
		if l.r.IntN(50) == 0 {
			panic(errLife)
		}
	}
	switch lp := l.c.Loop(); l.r.IntN(2) {
	case 0:
		_ = lp.Post(f)
	case 1:
		lp.AfterFunc(l.d(1), f)
	}
}

// look asks for all that there is to see.
func (l *life) look() {
	for c := range l.c.Loop().Conns() {
		if other := l.of(c); other != nil && (other.closed || other.isClosing()) {
			l.wrong("Loop.Conns yields connection %d, which is closing", c.ID())
		}
	}
	n := l.c.Pending()
	if closed := l.closed && n > 0; closed || n < 0 {
		l.wrong("%d bytes are pending; closed: %v", n, l.closed)
	}
	_, _, _ = l.c.Info(), l.c.Codec(), l.c.LocalAddr()
	if l.closed && !l.c.Info().IdleDeadline.IsZero() {
		l.wrong("it has an idle deadline, and is closed")
	}
}

// close ends it.
func (l *life) close() {
	if l.r.IntN(2) == 0 {
		l.end(nil)
		l.c.Close()
	} else {
		l.end(errLife)
		l.c.CloseWithError(errLife)
	}
	if !l.isClosing() {
		l.wrong("it is not closing after Close")
	}
}
