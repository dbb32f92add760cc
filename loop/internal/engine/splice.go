package engine

// A Splicer is a Socket whose input can go on to another socket of its loop without a copy.
type Splicer interface {
	Socket

	// Splice has what comes passed on to f's target, until it is called with nil. False: this one
	// cannot, and reads on as before.
	Splice(f Flow) bool
}

// A Flow is told of what is passed on. Its methods are called on the loop.
type Flow interface {
	// Target returns the socket that takes what has come, or nil: then it is read, and goes to
	// Sink.Readable as ever. It must have taken all that was written to it before.
	Target() Socket

	// Passed says how many bytes the target has taken, and which it did not take. These are valid
	// until it returns.
	Passed(n int, rest []byte)
}
