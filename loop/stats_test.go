package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Stats are exact for the turns that have ended, whatever changed in one together with what else.
func TestStatsAreExactAfterEachTurn(t *testing.T) {
	bubble(t, &loop.Server{Codec: codec.Lines{}}, func(t *testing.T, srv *looptest.Server) {
		expect := func(what string, conns int, closed, fired uint64, timers int) {
			t.Helper()
			st := srv.Stats()
			if st.Conns != conns || st.Closed != closed || st.Fired != fired || st.Timers != timers {
				t.Errorf("%s: %d connections, %d closed, %d fired, %d timers; want %d, %d, %d, %d",
					what, st.Conns, st.Closed, st.Fired, st.Timers, conns, closed, fired, timers)
			}
		}
		p := srv.Open()
		expect("opened", 1, 0, 0, 0)
		srv.Do(0, func(l *loop.Loop) { l.AfterFunc(time.Second, func() {}) })
		expect("a timer set", 1, 0, 0, 1)
		wait(2 * time.Second)
		expect("it fired", 1, 0, 1, 0)
		p.Close()
		expect("closed", 0, 1, 1, 0)
		srv.Open().Send("a\n", "b", "\n")
		st := srv.Stats()
		if st.Messages != 2 || st.BytesIn != 4 || st.Accepted != 2 || st.Loops[0].Messages != 2 {
			t.Errorf("stats %+v", st)
		}
	})
}

// A panic does not hide the callbacks that ran before it in the same batch.
func TestFiredCountsAroundAPanic(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.Do(0, func(l *loop.Loop) {
			for i := range 10 {
				l.AfterFunc(time.Second, func() {
					if i == 5 {
						panic("one of ten")
					}
				})
			}
		})
		wait(2 * time.Second)
		if st := srv.Stats(); st.Fired != 10 || st.Panics != 1 {
			t.Errorf("%d fired, %d panics; want 10 and 1", st.Fired, st.Panics)
		}
	})
}
