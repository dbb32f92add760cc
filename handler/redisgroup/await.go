package redisgroup

import "github.com/loopwheel/loopwheel/codec/resp"

// A kind of command says what is answered to it.
type commandKind byte

const (
	publishing     commandKind = iota // a number each
	pinging                           // anything
	authenticating                    // OK
	subscribing                       // a push for each channel
	unsubscribing                     // the same
)

// An await is what commands wait for. The wire's mu guards it until ended is closed.
type await struct {
	kind     commandKind
	left     int           // answers that are to come
	channels []string      // of those about subscriptions
	errs     []error       // of those that publish: what was answered
	ended    chan struct{} // of those that publish
}

// next returns the channel that the next answer is about.
func (a *await) next() string { return a.channels[len(a.channels)-a.left] }

// awaits is a queue, which gives memory back after a burst.
type awaits struct {
	all   []*await
	first int
}

// keptAwaits is how long the memory of an empty queue may be.
const keptAwaits = 64

func (q *awaits) push(a *await) {
	if q.first > 0 && len(q.all) == cap(q.all) {
		rest := q.all[q.first:]
		q.all, q.first = append(make([]*await, 0, 2*len(rest)+1), rest...), 0
	}
	q.all = append(q.all, a)
}

// head returns what was pushed first, or nil.
func (q *awaits) head() *await {
	if q.first == len(q.all) {
		return nil
	}
	return q.all[q.first]
}

func (q *awaits) pop() *await {
	a := q.head()
	if a == nil {
		return nil
	}
	q.all[q.first] = nil
	if q.first++; q.first == len(q.all) {
		q.all, q.first = q.all[:0], 0
		if cap(q.all) > keptAwaits {
			q.all = nil
		}
	}
	return a
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
		return w.answered(publishing)
	case '+':
		return w.answered(pinging, authenticating)
	case '>', '*': // an array: a server without RESP3 says it so
		if len(v.Elems) == 0 {
			return nil
		}
		if err := w.confirmed(v.Elems); err != nil {
			return err
		}
		take(v.Elems)
	}
	return nil
}

// confirmed takes what may be the answer to a command.
func (w *wire) confirmed(said []resp.Value) error {
	switch kind := string(said[0].Str); kind {
	case "pong":
		return w.answered(pinging)
	case "subscribe", "ssubscribe":
		return w.answered(subscribing)
	case "unsubscribe", "sunsubscribe":
		w.mu.Lock()
		defer w.mu.Unlock()
		a := w.awaited.head()
		if a == nil || a.kind != unsubscribing || len(said) < 2 || a.next() != string(said[1].Str) {
			return nil // unasked: a slot has moved away
		}
		w.next(nil)
	}
	return nil
}

// answered takes the answer to a command of one of those kinds.
func (w *wire) answered(kinds ...commandKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.awaited.head()
	for _, k := range kinds {
		if a != nil && a.kind == k {
			w.next(nil)
			return nil
		}
	}
	return errAnswer
}

// refused takes an error. It ends the wire if that cannot go on after it.
func (w *wire) refused(err error) error {
	w.mu.Lock()
	a := w.awaited.head()
	switch {
	case a == nil:
	case a.kind == publishing, a.kind == pinging: // a sign of life, too
		w.next(err)
		err = nil
	case a.kind != authenticating && w.denied != nil && isDenied(err):
		w.awaited.pop()
		w.told(a.left)
		w.mu.Unlock()
		w.denied(a, err)
		return nil
	}
	w.mu.Unlock()
	return err
}

// next notes an answer to the command that waits first. w.mu is held.
func (w *wire) next(err error) {
	a := w.awaited.head()
	if a.kind == publishing {
		a.errs = append(a.errs, err)
	}
	if a.channels != nil {
		w.told(1)
	}
	if a.left--; a.left > 0 {
		return
	}
	w.awaited.pop()
	if a.kind == publishing {
		close(a.ended)
	}
}
