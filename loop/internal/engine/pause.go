package engine

// A Mover is a Socket that is paused and resumed at less cost in another place.
type Mover interface {
	Socket

	// Move moves it there. The socket that it returns takes the place of this one, of which no
	// method may be called any more. False: this one cannot, and stays.
	Move() (Socket, bool)
}

// Pause pauses s. The socket that it returns takes the place of s, also with an error.
func Pause(s Socket) (Socket, error) {
	if m, ok := s.(Mover); ok {
		if there, ok := m.Move(); ok {
			s = there
		}
	}
	return s, s.Pause()
}
