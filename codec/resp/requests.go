package resp

import (
	"bytes"
	"errors"

	"github.com/loopwheel/loopwheel/codec"
)

// keptArgs is for how many arguments a connection keeps room between requests.
const keptArgs = 64

// Requests is the codec of one connection of a server, and its view of the request in hand: see
// Of. It belongs to the connection's loop.
type Requests struct {
	// Unauthenticated limits requests to 10 arguments of up to 16 KiB, for a peer that has not said
	// its password yet. Inline requests have no other limit than Server.MaxInline, as in
	// redis-server. It may be changed at any time and holds for what is decoded after that.
	Unauthenticated bool

	limits Server
	args   [][]byte
	inline []byte // the words of an inline request that are not in it as they are

	// The request that is not whole yet. Positions in it are offsets from its start, as it may be
	// somewhere else when more of it has come.
	spans []span
	count int // its arguments, 0 before that is known
	pos   int // of the next argument
}

// span is where an argument is in a request.
type span struct{ from, to int }

// Args returns the arguments of the request that OnMessage was called for; the first is the
// command's name, and there is always one. The slice and the bytes in it are valid until OnMessage
// returns; both may be overwritten. An argument may be extended by append without harm to the next.
func (r *Requests) Args() [][]byte { return r.args }

// Decode implements codec.Codec.
func (r *Requests) Decode(data []byte) (advance int, frame []byte, err error) {
	return r.DecodeFrom(data, 0)
}

// DecodeFrom implements codec.Resumer. The inline commands POST and Host: are ErrHTTP.
func (r *Requests) DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error) {
	if len(data) == 0 {
		return 0, nil, nil
	}
	if data[0] != '*' {
		return r.decodeInline(data, seen)
	}
	if seen == 0 {
		r.restart()
	}
	if r.count == 0 {
		if advance, err = r.header(data); advance != 0 || err != nil || r.count == 0 {
			return advance, nil, err
		}
	}
	for len(r.spans) < r.count {
		if r.usual(data) {
			continue
		}
		ok, err := r.argument(data)
		if err != nil {
			return 0, nil, err
		}
		if !ok {
			return 0, nil, r.checkSize(len(data))
		}
	}
	if err := r.checkSize(r.pos); err != nil {
		return 0, nil, err
	}
	r.args = r.args[:0]
	if r.count > keptArgs {
		r.args = make([][]byte, 0, r.count)
	}
	for _, s := range r.spans {
		r.args = append(r.args, data[s.from:s.to:s.to])
	}
	return r.pos, data[:r.pos], nil
}

// restart forgets the request before, and what it needed beyond the usual.
func (r *Requests) restart() {
	r.count, r.pos = 0, 0
	r.spans = r.spans[:0]
	if cap(r.spans) > keptArgs {
		r.spans, r.args = nil, nil
	}
}

// header reads how many arguments there are: r.count, or 0 if it has not come yet. A request
// without any is skipped: advance is its length.
func (r *Requests) header(data []byte) (advance int, err error) {
	line, next := r.line(data, 1)
	if next == 0 {
		if len(data) > r.limits.MaxInline {
			return 0, tooLong("too big mbulk count string")
		}
		return 0, nil
	}
	n, ok := parseInt(line)
	switch {
	case !ok:
		return 0, malformed("invalid multibulk length")
	case n > int64(r.limits.MaxArgs):
		return 0, tooLong("invalid multibulk length")
	case r.Unauthenticated && n > unauthenticatedArgs:
		return 0, malformed("unauthenticated multibulk length")
	case n <= 0:
		return next, nil
	}
	r.count, r.pos = int(n), next
	return 0, nil
}

// usual reads the next argument if it is whole and right and not very long, as nearly all are, and
// reports false if argument has to look at it.
func (r *Requests) usual(data []byte) bool {
	rest := data[r.pos:]
	if len(rest) < len("$0\r\n\r\n") || rest[0] != '$' || rest[1] == '0' && rest[2] != '\r' {
		return false
	}
	n, i := int(rest[1]-'0'), 2
	if n > 9 {
		return false
	}
	for ; i < 6 && i < len(rest) && rest[i]-'0' <= 9; i++ {
		n = n*10 + int(rest[i]-'0')
	}
	end := i + 2 + n
	if end+2 > len(rest) || rest[i] != '\r' || rest[i+1] != '\n' || rest[end] != '\r' || rest[end+1] != '\n' ||
		n > r.limits.MaxBulk || r.Unauthenticated {
		return false
	}
	r.spans = append(r.spans, span{r.pos + i + 2, r.pos + end})
	r.pos += end + 2
	return true
}

// argument reads the next argument, and reports false if it is not whole yet.
func (r *Requests) argument(data []byte) (ok bool, err error) {
	if r.pos >= len(data) {
		return false, nil
	}
	if data[r.pos] != '$' {
		return false, malformed("expected '$', got '" + printable(data[r.pos]) + "'")
	}
	line, next := r.line(data, r.pos+1)
	if next == 0 {
		if len(data)-r.pos > r.limits.MaxInline {
			return false, tooLong("too big bulk count string")
		}
		return false, nil
	}
	n, valid := parseInt(line)
	switch {
	case !valid || n < 0:
		return false, malformed("invalid bulk length")
	case n > int64(r.limits.MaxBulk):
		return false, tooLong("invalid bulk length")
	case r.Unauthenticated && n > unauthenticatedBulk:
		return false, malformed("unauthenticated bulk length")
	}
	if n > r.roomFor(next) {
		return false, tooLong("too big request")
	}
	end := next + int(n)
	if end > len(data)-2 {
		return false, nil
	}
	if data[end] != '\r' || data[end+1] != '\n' {
		return false, malformed("expected CRLF after a bulk string")
	}
	r.spans = append(r.spans, span{next, end})
	r.pos = end + 2
	return true, nil
}

// roomFor returns how long an argument that begins at from may be, beside what is kept of those
// before it. It is compared before anything is added to a length, which may be as large as an int.
func (r *Requests) roomFor(from int) int64 {
	return int64(r.limits.MaxRequest) - r.kept() - int64(from) - 2
}

// checkSize fails if n bytes, and what is kept of the arguments so far, are too much.
func (r *Requests) checkSize(n int) error {
	if int64(n)+r.kept() > int64(r.limits.MaxRequest) {
		return tooLong("too big request")
	}
	return nil
}

// kept returns how many bytes the places of the arguments so far count for.
func (r *Requests) kept() int64 { return int64(max(0, len(r.spans)-keptArgs)) * argRoom }

// line returns the line at data[from:], without its end, and the offset of what follows it: 0 if
// its end has not come, or is beyond the limit.
func (r *Requests) line(data []byte, from int) (line []byte, next int) {
	// Nearly all of these lines are a digit or two.
	for i := from; i < min(len(data)-1, from+4); i++ {
		if data[i] == '\r' {
			if data[i+1] == '\n' {
				return data[from:i], i + 2
			}
			break
		}
	}
	rest := data[from:]
	i := bytes.IndexByte(rest[:min(len(rest), r.limits.MaxInline)], '\r')
	if i < 0 || from+i+1 >= len(data) {
		return nil, 0
	}
	return rest[:i], from + i + 2
}

// decodeInline decodes a line of words.
func (r *Requests) decodeInline(data []byte, seen int) (advance int, frame []byte, err error) {
	end := bytes.IndexByte(data[seen:], '\n')
	if end < 0 && len(data) > r.limits.MaxInline || end >= 0 && seen+end > r.limits.MaxInline {
		return 0, nil, tooLong("too big inline request")
	}
	if end < 0 {
		return 0, nil, nil
	}
	end += seen
	line := data[:end]
	r.restart()
	var ok bool
	if r.args, r.inline, ok = splitWords(r.args[:0], r.inline[:0], line); !ok {
		return 0, nil, malformed("unbalanced quotes in request")
	}
	advance = end + 1
	switch {
	case len(r.args) == 0:
		return advance, nil, nil
	case advance > r.limits.MaxRequest:
		return 0, nil, tooLong("too big request")
	case isHTTP(r.args[0]):
		return 0, nil, ErrHTTP
	}
	return advance, data[:advance], nil
}

// isHTTP reports whether an inline command is a line of an HTTP request that may have a body, or a
// line that each such request has.
func isHTTP(command []byte) bool {
	return bytes.EqualFold(command, []byte("POST")) || bytes.EqualFold(command, []byte("Host:"))
}

// FrameSize implements codec.Sizer: exact for a request whose last argument has begun, otherwise
// what Server.MaxRequest and MaxInline allow.
func (r *Requests) FrameSize(data []byte) (size int, exact bool) {
	if size, exact = r.exactSize(data); exact {
		return size, true
	}
	return max(r.limits.MaxRequest, r.limits.MaxInline), false
}

func (r *Requests) exactSize(data []byte) (size int, ok bool) {
	if len(data) == 0 || data[0] != '*' {
		return 0, false
	}
	try := Requests{limits: r.limits, Unauthenticated: r.Unauthenticated}
	if len(r.spans) > 0 && r.count > 0 && r.pos < len(data) { // DecodeFrom has been here
		try.count, try.pos = r.count, r.pos
		if r.count-len(r.spans) != 1 {
			return 0, false
		}
	} else if _, err := try.header(data); err != nil || try.count != 1 {
		return 0, false
	}
	return try.lastSize(data)
}

// lastSize returns the size of a request whose last argument is at r.pos.
func (r *Requests) lastSize(data []byte) (size int, ok bool) {
	if r.pos >= len(data) || data[r.pos] != '$' {
		return 0, false
	}
	line, next := r.line(data, r.pos+1)
	n, valid := parseInt(line)
	if next == 0 || !valid || n < 0 || n > int64(r.limits.MaxBulk) || n > r.roomFor(next) ||
		r.Unauthenticated && n > unauthenticatedBulk {
		return 0, false
	}
	return next + int(n) + 2, true
}

// AppendFrame implements codec.Codec: frame is one reply, in the form that the Append functions
// give it. Another frame is codec.ErrMalformed, and one that is longer than Server.MaxRequest is
// codec.ErrTooLong: replies that may be longer are for Conn.Write.
func (r *Requests) AppendFrame(dst, frame []byte) ([]byte, error) {
	var s skipper
	n, err := s.skip(frame, r.limits.MaxRequest)
	switch {
	case err != nil:
		return dst, err
	case n == 0 || n != len(frame):
		return dst, malformed("a frame must be one whole reply")
	}
	return append(dst, frame...), nil
}

// AppendFarewell implements codec.Farewell: a peer that broke the protocol is told how.
func (r *Requests) AppendFarewell(dst []byte, err error) []byte {
	if e, ok := errors.AsType[*ProtocolError](err); ok {
		return AppendError(dst, "ERR "+e.Error())
	}
	return dst
}

func printable(b byte) string {
	if b < ' ' || b > '~' {
		return "?"
	}
	return string(rune(b))
}

var (
	_ codec.Stateful  = Server{}
	_ codec.Validator = Server{}
	_ codec.Resumer   = (*Requests)(nil)
	_ codec.Sizer     = (*Requests)(nil)
	_ codec.Farewell  = (*Requests)(nil)
)

// Save implements codec.Saver. A request that is not whole is decoded anew from its beginning.
func (r *Requests) Save() ([]byte, error) {
	if r.Unauthenticated {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// Restore implements codec.Saver.
func (r *Requests) Restore(state []byte) error {
	if len(state) != 1 || state[0] > 1 {
		return errors.New("resp: a saved state of another version")
	}
	r.Unauthenticated = state[0] == 1
	return nil
}

var _ codec.Saver = (*Requests)(nil)
