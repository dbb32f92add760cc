package handler

import (
	"unsafe"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

// CallBytes returns how much memory is kept for calls, about.
func CallBytes[A any](calls *Calls[A]) int {
	n := 24 * calls.peak // of the map
	for k := calls.spare; k != nil; k = k.next {
		n += int(unsafe.Sizeof(*k))
	}
	return n
}

// PipelineBytes is CallBytes of a Pipeline.
func PipelineBytes[A any](p *Pipeline[A]) int { return CallBytes(p.calls) }

// Tracked returns how many memberships and actors this package keeps account of on l. It must be
// called on l.
func Tracked(l *loop.Loop) (conns, memberships, actors int) {
	for _, state := range states(l) {
		conns++
		memberships += len(state.groups)
	}
	for e := range locals.Get(l).living {
		if _, ok := e.(*actor); ok {
			actors++
		}
	}
	return conns, memberships, actors
}

// states returns what this package keeps of the connections of l that are open.
func states(l *loop.Loop) (all []*connState) {
	for c := range l.Conns() {
		if s := in.State(c, func() inside.ConnState[*loop.Loop] { return nil }); s != nil {
			all = append(all, s.(*connState))
		}
	}
	return all
}

// Registered returns how many connections a Registry keeps account of.
func Registered[K comparable](r *Registry[K]) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

// Asked returns how many questions an actor has not answered, and how many of l wait for an answer.
// It must be called on l.
func Asked[M any](l *loop.Loop, r ActorRef[M]) (of, on int) {
	r.a.questions.mu.Lock()
	defer r.a.questions.mu.Unlock()
	return len(r.a.questions.waiting), asking(l)
}

// AskedConns returns how many questions of AskConnWait connections of l have not answered. It must be
// called on l.
func AskedConns(l *loop.Loop) (n int) {
	for _, state := range states(l) {
		n += len(state.questions.waiting)
	}
	return n
}

// asking returns how many questions of l wait for an answer.
func asking(l *loop.Loop) (n int) {
	for e := range locals.Get(l).living {
		if _, ok := e.(asked); ok {
			n++
		}
	}
	return n
}

// SetPoolTurn makes the next call of p its (n+1)th.
func SetPoolTurn[A any](p *Pool[A], n uint) { p.turn = n }
