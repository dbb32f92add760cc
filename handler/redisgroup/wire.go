package redisgroup

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/resp"
)

// A wire is the connection of a feed. It carries subscriptions, what is said in them, and messages
// of plain rooms that are published: so Redis has one connection of a process to read from, to
// write to and to wake it with, and what a process hears of its own goes along with the answer.
//
// It is RESP3, where what a subscription brings is told apart from answers. Answers come in the
// order of their commands; of a subscribing one there is one per channel.
type wire struct {
	net.Conn
	patience time.Duration // of a write
	shared   bool          // it may publish, too
	// denied is told of a command that would subscribe to channels, or unsubscribe from them, for
	// which the user has no right; the goroutine that reads calls it. nil: that ends the wire.
	denied func(a *await, err error)

	sending sync.Mutex // held while writing

	mu      sync.Mutex
	awaited awaits
	asked   int           // channels of which an answer tells that is to come
	answers chan struct{} // has a token when asked has come down to maxAsked
	broken  error         // no answer will come any more
}

var errBroken = errors.New("redisgroup: the connection was broken before")

var errNoAnswer = errors.New("redisgroup: Redis has not answered in time")

// send writes commands. all says what they wait for.
func (w *wire) send(commands []byte, all ...*await) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.sendLocked(commands, all...)
}

func (w *wire) sendLocked(commands []byte, all ...*await) error {
	if !w.expect(all) {
		return errBroken
	}
	_ = w.SetWriteDeadline(time.Now().Add(w.patience))
	_, err := w.Write(commands)
	if err != nil { // it may have half a command
		w.fail(err)
	}
	return err
}

// expect notes what is to be answered next, and reports whether the wire is whole.
func (w *wire) expect(all []*await) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return false
	}
	for _, a := range all {
		w.awaited.push(a)
		w.asked += len(a.channels)
	}
	return true
}

// maxAsked is how many channels answers are to come of before no more is asked. What is joined and
// left meanwhile is never told to Redis, so that one that stands still costs no memory for it.
const maxAsked = 8 * maxChannels

// mayAsk reports whether commands about channels may be sent. If not, answers gets a token later.
func (w *wire) mayAsk() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked <= maxAsked
}

// told notes that answers have come of n channels. w.mu is held.
func (w *wire) told(n int) {
	before := w.asked
	if w.asked -= n; before <= maxAsked || w.asked > maxAsked {
		return
	}
	select {
	case w.answers <- struct{}{}:
	default:
	}
}

// maxWrite is about how long one write of many commands may be.
const maxWrite = 64 << 10

// about sends commands about channels: SUBSCRIBE and the like, one for each of lists, as few writes as
// that takes.
func (w *wire) about(command string, lists ...[]string) error {
	kind := subscribing
	if strings.HasSuffix(command, "UNSUBSCRIBE") {
		kind = unsubscribing
	}
	var commands []byte
	var all []*await
	for i, channels := range lists {
		commands = resp.AppendCommand(commands, append([]string{command}, channels...)...)
		all = append(all, &await{kind: kind, left: len(channels), channels: channels})
		if len(commands) < maxWrite && i < len(lists)-1 {
			continue
		}
		if err := w.send(commands, all...); err != nil {
			return err
		}
		commands, all = commands[:0], nil
	}
	return nil
}

// auth says who we are now. If Redis does not want to know that, the wire ends.
func (w *wire) auth(username, password string) error {
	args := []string{"AUTH", username, password}
	if username == "" {
		args = []string{"AUTH", password}
	}
	return w.send(resp.AppendCommand(nil, args...), &await{kind: authenticating, left: 1})
}

// ping asks for a sign of life, unless somebody writes.
func (w *wire) ping() error {
	if !w.sending.TryLock() {
		return nil
	}
	defer w.sending.Unlock()
	return w.sendLocked(resp.AppendCommand(nil, "PING"), &await{kind: pinging, left: 1})
}

// publish sends n commands that publish, and returns what to wait for; nil if the wire was broken
// already, and nothing was sent.
func (w *wire) publish(commands []byte, n int) *await {
	a := &await{kind: publishing, left: n, errs: make([]error, 0, n), ended: make(chan struct{})}
	if err := w.send(commands, a); errors.Is(err, errBroken) {
		return nil
	}
	return a // an error has failed the wire, and a with it
}

// wait returns what was answered to commands that publish: an error for each, nil if it was taken.
// What is answered later than after timeout is not waited for; 0: for ever.
func (w *wire) wait(a *await, timeout time.Duration) []error {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	err := errNoAnswer
	select {
	case <-a.ended:
	case <-late:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		err = w.broken
	}
	errs := slices.Clone(a.errs)
	for range a.left {
		errs = append(errs, err)
	}
	return errs
}

// fail ends the wire.
func (w *wire) fail(err error) {
	_ = w.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return
	}
	w.broken = err
	for a := w.awaited.pop(); a != nil; a = w.awaited.pop() {
		if a.kind == publishing {
			close(a.ended)
		}
	}
}

// read hands what comes to take, until the connection breaks, or is silent in spite of pings.
func (w *wire) read(take func(said []resp.Value)) error {
	const usual = 16 << 10
	replies := resp.Client{}.New().(codec.Resumer)
	buf, n, silent := make([]byte, usual), 0, 0
	for {
		_ = w.SetReadDeadline(time.Now().Add(pingEvery))
		k, err := w.Conn.Read(buf[n:])
		seen := n
		n += k
		for at := 0; k > 0; seen = 0 {
			size, frame, e := replies.DecodeFrom(buf[at:n], seen)
			if e != nil {
				return e
			}
			if size == 0 {
				n = copy(buf, buf[at:n])
				break
			}
			if e := w.took(frame, take); e != nil {
				return e
			}
			at += size
		}
		switch {
		case n == len(buf):
			buf = append(buf, make([]byte, len(buf))...)
		case n == 0 && len(buf) > 4*usual: // something very long, which is taken
			buf = make([]byte, usual)
		}
		var timeout net.Error
		switch {
		case err == nil:
			silent = 0
		case !errors.As(err, &timeout) || !timeout.Timeout() || silent == maxSilent:
			return err
		default:
			silent++
			if err := w.ping(); err != nil {
				return err
			}
		}
	}
}

// A refusal is an error that Redis answered, which it is to go-redis, too.
type refusal struct{ error }

// RedisError makes a refusal a redis.Error.
func (refusal) RedisError() {}

// apart reports whether an error says that a connection with subscriptions cannot publish.
func apart(err error) bool {
	var r refusal
	return errors.As(err, &r) && strings.HasPrefix(r.Error(), "ERR Can't execute")
}
