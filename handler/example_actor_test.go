package handler_test

import (
	"fmt"
	"log"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// An auction is an actor: bids come from connections on any loop, and its clock is a timer of its
// own.
func ExampleActor() {
	type bid struct {
		amount int
		from   loop.Ref
	}
	answer := func(b bid, text string) {
		if err := b.from.Send(fmt.Appendf(nil, "%d: %s", b.amount, text)); err != nil {
			log.Printf("a bidder has left: %v", err)
		}
	}
	start := func(a *handler.Actor[bid]) func(bid) {
		var best bid
		var clock loop.Timer
		a.OnStop(func(error) { answer(best, "sold to you") })
		return func(b bid) {
			switch {
			case b.amount < 25:
				answer(b, "below the reserve")
			case b.amount > best.amount:
				best = b
				if !clock.Reset(20 * time.Millisecond) {
					clock = a.AfterFunc(20*time.Millisecond, a.Stop)
				}
			}
		}
	}
	var auction handler.ActorRef[bid]
	srv := &loop.Server{
		OnStart: func(l *loop.Loop) {
			if l.Index() == 0 {
				auction, _ = handler.Spawn(l, start)
			}
		},
		Accept: handler.JSON[int]().Func(func(c *loop.Conn, amount int) error {
			if err := auction.Tell(bid{amount, c.Ref()}); err != nil {
				return c.Send([]byte(err.Error()))
			}
			return nil
		}),
	}
	serve(srv, func(dial func() *client) {
		ann, bob := dial(), dial()
		fmt.Println(ann.ask("10"))
		fmt.Println(bob.ask("30"))
		fmt.Println(ann.ask("40"))
	})
	// Output:
	// 10: below the reserve
	// 30: sold to you
	// handler: actor stopped
}

// State that outlives its connections belongs to an actor. The connections ask, and it answers them
// by loop.Ref.
func ExampleSpawn() {
	type add struct {
		n    int
		from loop.Ref
	}
	srv := &loop.Server{NumLoops: 2}
	var counter handler.ActorRef[add]
	srv.OnStart = func(l *loop.Loop) {
		if l.Index() != 0 {
			return
		}
		var err error
		counter, err = handler.Spawn(l, func(*handler.Actor[add]) func(add) {
			total := 0
			return func(m add) {
				total += m.n
				if err := m.from.Send(fmt.Appendf(nil, "total %d", total)); err != nil {
					log.Printf("nobody reads the total: %v", err)
				}
			}
		})
		if err != nil {
			panic(err) // makes Start fail
		}
	}
	srv.Accept = handler.JSON[int]().Func(func(c *loop.Conn, n int) error {
		return counter.Tell(add{n, c.Ref()})
	})
	serve(srv, func(dial func() *client) {
		a, b := dial(), dial()
		fmt.Println(a.ask("1"))
		fmt.Println(b.ask("2"))
		fmt.Println(a.ask("3"))
	})
	// Output:
	// total 1
	// total 3
	// total 6
}
