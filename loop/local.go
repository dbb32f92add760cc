package loop

// A Local is loop-local state: one T for each loop, made when a loop first asks. It serves what
// connections of one loop share (a cache, a counter, a client, members of a room) and needs no
// lock, as only its loop touches it.
//
// A Local is usually a package variable, or a field beside the Server. It may serve several
// servers.
type Local[T any] struct {
	make func(l *Loop) T
}

// NewLocal returns a Local whose values are made by make, or start as the zero T if make is nil.
func NewLocal[T any](make func(l *Loop) T) *Local[T] {
	return &Local[T]{make: make}
}

// Get returns l's T, the same pointer each time. It must be called on l. A nil Local or Loop
// panics.
func (v *Local[T]) Get(l *Loop) *T {
	if v == nil || l == nil {
		panic("loop: Local.Get of a nil Local, or with a nil Loop: NewLocal makes one, Conn.Loop has the other")
	}
	l.owner.Check("Local.Get")
	if p, ok := l.locals[v].(*T); ok {
		return p
	}
	p := new(T)
	if v.make != nil {
		*p = v.make(l)
	}
	if l.locals == nil {
		l.locals = make(map[any]any)
	}
	l.locals[v] = p
	return p
}
