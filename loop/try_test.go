package loop_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return nil }})
		srv.Do(0, func(l *loop.Loop) {
			ran := false
			if err := l.Try(func() { ran = true }); err != nil || !ran {
				t.Errorf("ran %v, err %v", ran, err)
			}
			var p *loop.PanicError
			err := l.Try(func() { panic(io.ErrNoProgress) })
			if !errors.As(err, &p) || !errors.Is(err, io.ErrNoProgress) || len(p.Stack) == 0 {
				t.Errorf("a panic was returned as %v", err)
			}
		})
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted, want 1", n)
		}
	})
}

func TestAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		note := func(s string) func() { return func() { order = append(order, s) } }
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1,
			Accept:   func(*loop.Conn) loop.Handler { return nil },
			OnStop: func(l *loop.Loop) {
				note("OnStop")()
				l.AfterStop(note("added in OnStop"))
			},
		})
		srv.Do(0, func(l *loop.Loop) {
			l.AfterStop(note("first"))
			l.AfterStop(func() { panic("in AfterStop") })
			l.AfterStop(func() {
				note("third")()
				if err := l.Post(note("posted")); !errors.Is(err, loop.ErrServerClosed) {
					t.Errorf("Post in AfterStop: %v", err)
				}
				l.AfterStop(note("added in AfterStop"))
			})
		})
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		want := []string{"OnStop", "first", "third", "added in OnStop", "added in AfterStop"}
		if !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted, want 1", n)
		}
	})
}
