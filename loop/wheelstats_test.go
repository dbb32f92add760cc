package loop_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestWheelStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return nil }})
		srv.Do(0, func(l *loop.Loop) {
			l.AfterFunc(time.Millisecond, func() {})
			l.AfterFunc(time.Hour, func() {})
			if s := l.WheelStats(); s.Pending != 2 || s.Levels[0] != 1 || s.Fired != 0 {
				t.Errorf("%+v, want two timers, one on the lowest level", s)
			}
		})
		wait(time.Second)
		srv.Do(0, func(l *loop.Loop) {
			if s := l.WheelStats(); s.Pending != 1 || s.Levels[0] != 0 || s.Fired != 1 {
				t.Errorf("%+v, want one timer, and one that has fired", s)
			}
		})
	})
}
