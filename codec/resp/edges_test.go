package resp_test

import (
	"errors"
	"math"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/resp"
)

// Lengths that are as large as an int, or would be if something were added, are lengths like any
// other, also where an int has 32 bits.
func TestLengthsAtTheEdges(t *testing.T) {
	limits := resp.Server{MaxBulk: math.MaxInt, MaxArgs: math.MaxInt, MaxInline: math.MaxInt, MaxRequest: math.MaxInt}
	for _, n := range []string{"2147483640", "2147483647", "2147483648", "4294967296", "9223372036854775800", "9223372036854775807"} {
		in := []byte("*1\r\n$" + n + "\r\nab\r\n")
		r := limits.New()
		advance, frame, err := r.Decode(in)
		if advance != 0 || frame != nil || err != nil && !errors.Is(err, codec.ErrTooLong) {
			t.Errorf("a request with an argument of %s bytes: %d, %q, %v", n, advance, frame, err)
		}
		if size, ok := r.(codec.Sizer).FrameSize(in); ok && size < len(in) {
			t.Errorf("a request with an argument of %s bytes has %d", n, size)
		}
	}
	for _, in := range []string{
		"$2147483640\r\nab\r\n", "$2147483647\r\nab\r\n", "$2147483648\r\nab\r\n",
		"*2147483647\r\n:1\r\n", "*2147483648\r\n:1\r\n", "%2147483647\r\n:1\r\n:1\r\n", "|2147483648\r\n:1\r\n:1\r\n",
		"*2147483648\r\n*2147483648\r\n*2147483648\r\n",
	} {
		advance, frame, err := resp.Client{MaxReply: math.MaxInt}.New().Decode([]byte(in))
		if advance != 0 || frame != nil || err != nil && !errors.Is(err, codec.ErrTooLong) {
			t.Errorf("%q: %d, %q, %v", in, advance, frame, err)
		}
	}
}

// A boolean is a number, too.
func TestParseBooleans(t *testing.T) {
	for in, want := range map[string]int64{"#t\r\n": 1, "#f\r\n": 0} {
		if v, err := resp.Parse([]byte(in)); v.Int != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", in, v.Int, err, want)
		}
	}
}

// A client's codec goes on where it was only with what it has seen.
func TestRepliesBeginAnew(t *testing.T) {
	c := resp.Client{}.New()
	for _, in := range []string{"*2\r\n:1\r\n", "*1\r\n", ":5\r\n", "*2\r\n:1\r\n:2\r\n"} {
		n, frame, err := c.Decode([]byte(in))
		if whole := in == ":5\r\n" || len(in) > 10; err != nil || (n == len(in)) != whole || (frame != nil) != whole {
			t.Errorf("%q: %d, %q, %v", in, n, frame, err)
		}
	}
}

// A browser's request has commands in its body. Nothing of it is run: the codec refuses the line
// that shows it to be HTTP.
func TestHTTPIsRefused(t *testing.T) {
	for _, in := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET pwned yes\r\n", "post /\r\n", "Host: x\r\n", "HOST:\n", " \tPost x\r\n", "host: \"a b\"\r\n",
	} {
		r := resp.Server{}.New()
		if n, frame, err := r.Decode([]byte(in)); n != 0 || frame != nil || !errors.Is(err, resp.ErrHTTP) || !errors.Is(err, codec.ErrMalformed) {
			t.Errorf("%q: %d, %q, %v", in, n, frame, err)
		}
		if f := r.(codec.Farewell).AppendFarewell(nil, resp.ErrHTTP); len(f) != 0 {
			t.Errorf("%q is answered %q", in, f)
		}
	}
	for _, in := range []string{"POSTS x\r\n", "GET Host:\r\n", "Host x\r\n"} {
		if n, frame, err := (resp.Server{}).New().Decode([]byte(in)); n != len(in) || frame == nil || err != nil {
			t.Errorf("%q: %d, %q, %v", in, n, frame, err)
		}
	}
}
