package matches

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// This file is compiled with the code in docs/matches.md, by TestMatches.

// OnMessage gets the name of the match to play. Its first letter says on which loop that lives.
func (p *player) OnMessage(c *loop.Conn, name []byte) error {
	all := server.Loops()
	return p.play(c, all[int(name[0])%len(all)], string(name))
}

var server *loop.Server

func newServer() *loop.Server {
	names := 0
	var mu sync.Mutex
	server = &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		mu.Lock()
		defer mu.Unlock()
		names++
		return &player{name: fmt.Sprint("p", names)}
	}}
	return server
}

// A player who has moved on leaves nothing behind that could harm the next match of that name.
func TestMovesOn(t *testing.T) {
	for _, next := range []string{"b", "c"} { // on the other loop, and on the same one
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, newServer())
			p1, p2 := srv.Open(), srv.Open()
			p1.Send("a\n")
			p1.Send(next + "\n")
			p2.Send("a\n")
			p1.Close()
			p3 := srv.Open()
			p3.Send("a\n")
			if got, want := p2.Received(), "p2 plays\np3 plays\n"; got != want {
				t.Errorf("p2 got %q, want %q", got, want)
			}
			for _, p := range []*looptest.Peer{p2, p3} {
				p.Close()
			}
			for i := range srv.Loops() {
				srv.Do(i, func(l *loop.Loop) {
					if n := len(*matches.Get(l)); n != 0 {
						t.Errorf("%d matches are left on loop %d", n, i)
					}
				})
			}
		})
	}
}

// Many players move from match to match and leave, on two loops at once.
func TestRaces(t *testing.T) {
	srv := newServer()
	srv.Addr = "tcp://127.0.0.1:0"
	srv.OnStop = func(l *loop.Loop) {
		if n := len(*matches.Get(l)); n != 0 {
			t.Errorf("%d matches are left on a loop", n)
		}
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var players sync.WaitGroup
	for i := range 20 {
		players.Go(func() {
			for j := range 20 {
				c, err := net.Dial("tcp", srv.LocalAddr().String())
				if err != nil {
					t.Error(err)
					return
				}
				for k := range 4 {
					_, _ = fmt.Fprintf(c, "%c\n", 'a'+(i+j+k)%5)
					time.Sleep(time.Millisecond)
				}
				_ = c.Close()
			}
		})
	}
	players.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var cut *loop.DrainError // of players who have gone and not read
	if err := srv.Shutdown(ctx); err != nil && !errors.As(err, &cut) {
		t.Error(err)
	}
}
