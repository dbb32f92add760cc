package redisgroup

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/seed"
)

// A talker is a Redis that answers whatever way it likes, in pieces of any length, with messages
// between, until it has read so many commands: then it breaks off somewhere.
type talker struct {
	net.Conn
	rng      *rand.Rand
	left     int             // commands
	refused  map[string]bool // by the last argument of commands that publish: what was answered
	messages int
}

func (k *talker) run() {
	defer k.Close()
	requests := resp.Server{}.New().(*resp.Requests)
	buf, n := make([]byte, 1<<16), 0
	for {
		m, err := k.Read(buf[n : n+1+k.rng.IntN(len(buf)-n)])
		if err != nil {
			return
		}
		n += m
		var answers []byte
		for k.left > 0 {
			size, _, err := requests.Decode(buf[:n])
			if err != nil || size == 0 {
				break
			}
			answers = k.answer(answers, requests.Args())
			n = copy(buf, buf[size:n])
			k.left--
		}
		if k.left == 0 {
			answers = answers[:k.rng.IntN(len(answers)+1)]
		}
		for len(answers) > 0 {
			piece := min(len(answers), 1+k.rng.IntN(1<<k.rng.IntN(16)))
			if _, err := k.Write(answers[:piece]); err != nil {
				return
			}
			answers = answers[piece:]
		}
		if k.left == 0 {
			return
		}
	}
}

func (k *talker) answer(answers []byte, args [][]byte) []byte {
	answers = k.chat(answers)
	switch string(args[0]) {
	case "PING":
		return append(answers, "+PONG\r\n"...)
	case "SUBSCRIBE":
		for _, channel := range args[1:] {
			answers = k.chat(fmt.Appendf(answers, ">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel))
		}
		return answers
	}
	id := string(args[2])
	if k.refused[id] = k.rng.IntN(3) == 0; k.refused[id] {
		return fmt.Appendf(answers, "-NO %s\r\n", id)
	}
	return fmt.Appendf(answers, ":%d\r\n", k.rng.IntN(1000))
}

// chat adds messages now and then, long ones, too.
func (k *talker) chat(answers []byte) []byte {
	for k.rng.IntN(4) == 0 {
		payload := strings.Repeat("-", k.rng.IntN(1<<k.rng.IntN(17)))
		answers = fmt.Appendf(answers, ">3\r\n$7\r\nmessage\r\n$%d\r\n%d\r\n$%d\r\n%s\r\n",
			len(fmt.Sprint(k.messages)), k.messages, len(payload), payload)
		k.messages++
	}
	return answers
}

// Whoever publishes gets the answers to what it has said, and no others, whatever is said between
// and in whatever pieces it comes; and an error for each that was not answered when the connection
// broke. Messages come in their order.
func TestWireAnswersEachItsOwn(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	for range 20 {
		here, there := net.Pipe()
		w := &wire{Conn: here, patience: time.Minute, shared: true}
		k := &talker{Conn: there, rng: rand.New(rand.NewPCG(rng.Uint64(), 2)), left: 1 + rng.IntN(600), refused: make(map[string]bool)}
		heard := 0
		var wg sync.WaitGroup
		wg.Go(k.run)
		wg.Go(func() {
			w.fail(w.read(func(said []resp.Value) {
				if string(said[0].Str) != "message" {
					return
				}
				if got := string(said[1].Str); got != fmt.Sprint(heard) || len(bytes.Trim(said[2].Str, "-")) > 0 {
					t.Errorf("message %s came, want %d", got, heard)
				}
				heard++
			}))
		})
		var all [3]published
		for i := range all {
			all[i].publish(w, i, rand.New(rand.NewPCG(rng.Uint64(), 3)), &wg)
		}
		wg.Go(func() {
			for i := 0; w.about("SUBSCRIBE", []string{"a", "b"}[:1+i%2]) == nil; i++ {
				_ = w.ping()
			}
		})
		wg.Wait()
		for _, p := range all {
			p.check(t, k)
		}
	}
}

// A published is what one goroutine has published, and what it was answered.
type published struct {
	ids  []string
	errs []error
}

func (p *published) publish(w *wire, who int, rng *rand.Rand, wg *sync.WaitGroup) {
	wg.Go(func() {
		for batch := 0; ; batch++ {
			var commands []byte
			n := 1 + rng.IntN(20)
			for i := range n {
				id := fmt.Sprintf("%d.%d.%d", who, batch, i)
				p.ids = append(p.ids, id)
				commands = resp.AppendCommand(commands, "PUBLISH", "c", id)
			}
			a := w.publish(commands, n)
			if a == nil {
				p.ids = p.ids[:len(p.errs)]
				return
			}
			p.errs = append(p.errs, w.wait(a, 0)...)
		}
	})
}

func (p *published) check(t *testing.T, k *talker) {
	t.Helper()
	if len(p.ids) != len(p.errs) {
		t.Fatalf("%d answers to %d commands", len(p.errs), len(p.ids))
	}
	broken := false
	for i, id := range p.ids {
		refused, said := k.refused[id]
		switch what := judge(p.errs[i]); {
		case what == unclear:
			broken = true
		case broken || !said || (what == done) == refused || refused && p.errs[i].Error() != "NO "+id:
			t.Errorf("%s was answered with %v; it was refused: %v, answered at all: %v", id, p.errs[i], refused, said)
		}
	}
}
