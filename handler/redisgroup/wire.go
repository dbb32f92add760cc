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

	sending sync.Mutex // held while writing

	mu      sync.Mutex
	awaited []*await
	broken  error // no answer will come any more
}

// An await is what a command waits for. The wire's mu guards it until ended is closed.
type await struct {
	left    int           // answers that are to come
	errs    []error       // of those that publish: what was answered
	publish bool          // else it is a ping, or about subscriptions
	ended   chan struct{} // of those that publish
}

var errBroken = errors.New("redisgroup: the connection was broken before")

var errNoAnswer = errors.New("redisgroup: Redis has not answered in time")

// send writes commands. a says what they wait for.
func (w *wire) send(commands []byte, a *await) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.sendLocked(commands, a)
}

func (w *wire) sendLocked(commands []byte, a *await) error {
	if !w.expect(a) {
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
func (w *wire) expect(a *await) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return false
	}
	w.awaited = append(w.awaited, a)
	return true
}

// about sends a command about channels: SUBSCRIBE and the like.
func (w *wire) about(command string, channels []string) error {
	return w.send(resp.AppendCommand(nil, append([]string{command}, channels...)...), &await{left: len(channels)})
}

// ping asks for a sign of life, unless somebody writes.
func (w *wire) ping() error {
	if !w.sending.TryLock() {
		return nil
	}
	defer w.sending.Unlock()
	return w.sendLocked(resp.AppendCommand(nil, "PING"), &await{left: 1})
}

// publish sends n commands that publish, and returns what to wait for; nil if the wire was broken
// already, and nothing was sent.
func (w *wire) publish(commands []byte, n int) *await {
	a := &await{left: n, errs: make([]error, 0, n), publish: true, ended: make(chan struct{})}
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
	for _, a := range w.awaited {
		if a.publish {
			close(a.ended)
		}
	}
	w.awaited = nil
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

// took takes what has come whole.
func (w *wire) took(frame []byte, take func(said []resp.Value)) error {
	v, err := resp.Parse(frame)
	if err != nil {
		return err
	}
	switch v.Kind {
	case '-', '!':
		return w.refused(refusal{v.Err()})
	case ':':
		return w.answered(true)
	case '+':
		return w.answered(false)
	case '>', '*': // an array: a server without RESP3 says it so
		if len(v.Elems) == 0 {
			return nil
		}
		switch string(v.Elems[0].Str) {
		case "pong", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe":
			if err := w.answered(false); err != nil {
				return err
			}
		}
		take(v.Elems)
	}
	return nil
}

// answered takes the answer to a command that was carried out, which publishes or does not.
func (w *wire) answered(publish bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.awaited) == 0 && !publish: // a slot has moved away
		return nil
	case len(w.awaited) == 0 || w.awaited[0].publish != publish:
		return errAnswer
	}
	w.next(nil)
	return nil
}

// refused takes an error. If it is not about publishing it ends the wire.
func (w *wire) refused(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.awaited) == 0 || !w.awaited[0].publish {
		return err
	}
	w.next(err)
	return nil
}

// next notes an answer to the command that waits first. w.mu is held.
func (w *wire) next(err error) {
	a := w.awaited[0]
	if a.publish {
		a.errs = append(a.errs, err)
	}
	if a.left--; a.left > 0 {
		return
	}
	w.awaited[0] = nil
	w.awaited = w.awaited[1:]
	if a.publish {
		close(a.ended)
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
