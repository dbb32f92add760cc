package realtest_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// The log has the words of this project, and nothing of the engine below it, at any level.
func TestLogHasNoWordOfTheEngine(t *testing.T) {
	var log bytes.Buffer
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.TraceLevel),
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, c, "x")
	_ = c.Close()
	srv.Logger.Info().Msg("this one is there")
	cancel()
	if err := srv.Wait(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "this one is there") || strings.Contains(strings.ToLower(text), "gnet") || strings.Contains(text, "event-loop") {
		t.Errorf("the log: %s", text)
	}
}
