package handler_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What a codec refuses may come from a peer: it fills no log, however often it comes.
func TestGroupLogsOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		var log bytes.Buffer
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: joining(g), Logger: zerolog.New(&log)})
		open(srv, 20)
		for _, want := range []string{`"more":0`, `"more":4`} {
			for range 5 {
				if err := g.Broadcast([]byte("two\nlines")); err != nil {
					t.Error(err)
				}
			}
			testkit.Pass(1100 * time.Millisecond)
			if last := log.String(); strings.Count(last, "cannot be sent") != 1 || !strings.Contains(last, want) {
				t.Errorf("want one line with %s: %s", want, last)
			}
			log.Reset()
		}
	})
}
