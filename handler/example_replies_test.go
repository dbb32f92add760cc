package handler_test

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// A counter for each word, spread over loops: each owns those words that hash to it. Clients
// pipeline, and get their answers in the order in which they asked.
func ExampleReplies() {
	counters := loop.NewLocal(func(*loop.Loop) map[string]int { return make(map[string]int) })
	srv := &loop.Server{NumLoops: 4}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		replies := handler.NewReplies(c, handler.RepliesConfig{})
		return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error {
			word := string(line) // line is valid only until this returns
			hash := fnv.New32()
			_, _ = hash.Write(line)
			owner := srv.Loops()[hash.Sum32()%4]
			return replies.RunOn(owner, func(dst []byte) []byte {
				mine := *counters.Get(owner)
				mine[word]++
				return fmt.Appendf(dst, "%s %d\n", word, mine[word])
			})
		})
	}
	serve(srv, func(dial func() *client) {
		c := dial()
		c.say(strings.Join([]string{"tea", "milk", "tea", "sugar", "tea"}, "\n"))
		for range 5 {
			fmt.Println(c.hear())
		}
	})
	// Output:
	// tea 1
	// milk 1
	// tea 2
	// sugar 1
	// tea 3
}
