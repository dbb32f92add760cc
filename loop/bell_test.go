package loop

import (
	"runtime"
	"testing"

	"github.com/loopwheel/loopwheel/loop/internal/alarm"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// On Linux loops have bells of the engine's, so that no other goroutine wakes them. Go's net has
// none: there they have the alarm's.
func TestWhoseBells(t *testing.T) {
	for name, e := range map[string]Engine{"default": EngineDefault, "net": EngineNet} {
		t.Run(name, func(t *testing.T) {
			s := &Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Engine: e, Accept: func(*Conn) Handler { return nil }}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			own := e == EngineDefault && engine.Default() == engine.Gnet &&
				runtime.GOOS == "linux" && runtime.GOARCH != "386" && runtime.GOARCH != "s390x"
			for i, l := range s.loops {
				if _, alarmed := l.bell.(*alarm.Bell); alarmed == own {
					t.Errorf("the bell of loop %d is a %T", i, l.bell)
				}
			}
		})
	}
}
