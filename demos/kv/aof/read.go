package aof

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A CorruptError says that a file is not what was written.
type CorruptError struct {
	Path   string
	Offset int64 // of the first command that is not whole
	Err    error // why; nil: the file just ends there
}

// Error says what to do, too.
func (e *CorruptError) Error() string {
	why := "it ends in the middle of a command"
	if e.Err != nil {
		why = e.Err.Error()
	}
	return fmt.Sprintf("%s: bad at offset %d: %s. Make a copy of the file; then truncate -s %d %s keeps what is before that",
		e.Path, e.Offset, why, e.Offset, e.Path)
}

// Unwrap returns Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// Torn reports whether the file just ends too early, as after a crash.
func (e *CorruptError) Torn() bool { return e.Err == nil }

// Read calls apply for each command of a file. What is between MULTI and EXEC is applied at its
// EXEC, or not at all. An error of apply counts as one of the file.
func Read(path string, apply func(args [][]byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r := reader{path: path, apply: apply, requests: resp.Server{}.New().(*resp.Requests)}
	return r.read(file)
}

type reader struct {
	path     string
	apply    func(args [][]byte) error
	requests *resp.Requests
	offset   int64      // of data[0]
	good     int64      // what is before is whole
	queue    [][][]byte // since MULTI
	multi    bool
}

func (r *reader) read(file io.Reader) error {
	in := bufio.NewReaderSize(file, 1<<20)
	var data []byte
	seen := 0
	for {
		n := len(data)
		data = append(data, make([]byte, max(1<<16, n))...)
		k, err := in.Read(data[n:])
		data = data[:n+k]
		if data, seen, err = r.decode(data, seen, err); err != nil {
			if errors.Is(err, io.EOF) {
				return r.ended(len(data))
			}
			return err
		}
	}
}

// decode applies the commands that are whole, and returns what is left, and readErr.
func (r *reader) decode(data []byte, seen int, readErr error) (rest []byte, _ int, err error) {
	at := 0
	for at < len(data) {
		if data[at] != '*' {
			return nil, 0, &CorruptError{r.path, r.good, errors.New("a command that does not begin with '*'")}
		}
		n, frame, err := r.requests.DecodeFrom(data[at:], seen)
		switch {
		case err != nil:
			return nil, 0, &CorruptError{r.path, r.good, err}
		case n == 0:
			rest = append(data[:0], data[at:]...)
			return rest, len(rest), readErr
		case frame == nil:
			return nil, 0, &CorruptError{r.path, r.good, errors.New("a command without a name")}
		}
		at, seen = at+n, 0
		r.offset += int64(n)
		if err := r.command(r.requests.Args()); err != nil {
			return nil, 0, &CorruptError{r.path, r.good, err}
		}
	}
	return data[:0], 0, readErr
}

func (r *reader) command(args [][]byte) error {
	switch name := string(args[0]); {
	case name == "MULTI":
		if r.multi {
			return errors.New("MULTI in a MULTI")
		}
		r.multi = true
		return nil
	case name == "EXEC":
		if !r.multi {
			return errors.New("EXEC without MULTI")
		}
		for _, args := range r.queue {
			if err := r.apply(args); err != nil {
				return err
			}
		}
		r.multi, r.queue = false, nil
	case r.multi:
		own := make([][]byte, len(args))
		for i, a := range args {
			own[i] = append([]byte(nil), a...)
		}
		r.queue = append(r.queue, own)
		return nil
	default:
		if err := r.apply(args); err != nil {
			return err
		}
	}
	r.good = r.offset
	return nil
}

// ended is called at the end of the file, with what is left that is no whole command.
func (r *reader) ended(left int) error {
	if left > 0 || r.multi {
		return &CorruptError{Path: r.path, Offset: r.good}
	}
	return nil
}
