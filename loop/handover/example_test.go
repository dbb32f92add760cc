package handover_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"

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

// A server that may be started a second time beside itself: the second process takes over all
// connections, and the first one ends.
func ExampleTake() {
	srv := &loop.Server{
		Addr:  "tcp://:7000",
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			s := new(session)
			if state, moved := c.Saved(); moved && json.Unmarshal(state, s) != nil {
				return nil // closes it
			}
			return s
		},
	}
	cfg := handover.Config{
		Path:  "/run/game/handover",
		Check: func(state []byte) error { return json.Unmarshal(state, new(session)) },
	}
	report, err := handover.Take(context.Background(), srv, cfg) // in place of srv.Start
	if err != nil && !errors.Is(err, handover.ErrTakenBack) {
		log.Fatal(err)
	}
	log.Printf("%d connections were taken over, %d stayed", report.Conns, report.Stayed)
	if _, err := handover.Listen(srv, cfg); err != nil { // for the process after this one
		log.Fatal(err)
	}
	if err := srv.Wait(); err != nil {
		log.Fatal(err)
	}
}
