package handover_test

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A session is an actor that moves to the next process with its name and its score.
type session struct {
	Name  string
	Score int
}

func (s *session) OnMessage(c *loop.Conn, line []byte) error {
	s.Score += len(line)
	return c.Send(line)
}

func (s *session) OnClose(*loop.Conn, error) {}

func (s *session) Save(*loop.Conn) ([]byte, error) { return json.Marshal(s) }

// A server that is replaced by SIGHUP, or by a second start: the next process takes over all
// connections, and this one ends.
func ExampleHandover_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv := &loop.Server{
		Addr:  "tcp://:7000",
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			s := new(session)
			if state, moved := c.Saved(); moved && json.Unmarshal(state, s) != nil {
				return nil // it stays with the old process
			}
			return s
		},
	}
	h, err := handover.Open(ctx, srv, handover.Config{Path: "/run/game/handover"})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	if err := h.ServeHTTP("health", "127.0.0.1:7080", &http.Server{Handler: http.NotFoundHandler()}); err != nil {
		log.Fatal(err)
	}
	h.RestartOn(syscall.SIGHUP)
	if err := h.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
