package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/framing"
)

// decode feeds pieces to a new codec, and returns the arguments of each request, and at last what
// is wrong with the input, if something is.
func decode(pieces ...[]byte) (found [][]string, broken string) {
	var decoder framing.Decoder
	decoder.Init(new(requests), nil)
	r := decoder.Codec().(*requests)
	for _, data := range pieces {
		for len(data) > 0 {
			rest, frame, more, err := decoder.Next(data)
			if err != nil {
				return found, err.Error()
			}
			if frame != nil {
				found = append(found, words(r.args))
			}
			if data = rest; !more && frame == nil {
				break
			}
		}
	}
	return found, r.broken
}

func words(args [][]byte) (of []string) {
	for _, a := range args {
		of = append(of, string(a))
	}
	return of
}

func TestRequests(t *testing.T) {
	for _, tt := range []struct {
		in     string
		want   [][]string
		broken string
	}{
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", [][]string{{"GET", "k"}}, ""},
		{"*0\r\n*-1\r\n\r\n\n*1\r\n$0\r\n\r\n", [][]string{{""}}, ""},
		{"PING\r\nECHO hi\n", [][]string{{"PING"}, {"ECHO", "hi"}}, ""},
		{"set \"a\\x41\\n\\\"\" 'it\\'s \\n' p\"q\"\r\n", [][]string{{"set", "aA\n\"", "it's \\n", "pq"}}, ""},
		{"  a\t b  \r\n", [][]string{{"a", "b"}}, ""},
		{"*1\r\n$4\r\nPI\r\n\r\n*1\r\n$1\r", [][]string{{"PI\r\n"}}, ""},
		{"*1\r\n$4\r\nPING\r\n*1\r\n:4\r\nPING\r\n", [][]string{{"PING"}, nil}, "expected '$', got ':'"},
		{"*1\r\n$-1\r\n", [][]string{nil}, "invalid bulk length"},
		{"*1\r\n$9223372036854775807\r\n", [][]string{nil}, "invalid bulk length"},
		{"*1\r\n$9223372036854775808\r\n", [][]string{nil}, "invalid bulk length"},
		{"*1\r\n$18446744073709551615\r\n", [][]string{nil}, "invalid bulk length"},
		{"*1\r\n$16777217\r\n", [][]string{nil}, "invalid bulk length"},
		{"*1\r\n$16777216\r\nabc", nil, ""},
		{"*9223372036854775807\r\n", [][]string{nil}, "invalid multibulk length"},
		{"*9223372036854775808\r\n", [][]string{nil}, "invalid multibulk length"},
		{"*1048577\r\n", [][]string{nil}, "invalid multibulk length"},
		{"*1048576\r\n$1\r\na\r\n", nil, ""},
		{"*x\r\n", [][]string{nil}, "invalid multibulk length"},
		{"PING 'a\r\n", [][]string{nil}, "unbalanced quotes in request"},
		{"PING \"a\"b\r\n", [][]string{nil}, "unbalanced quotes in request"},
		{strings.Repeat("x", maxLine+1), [][]string{nil}, "too big inline request"},
		{strings.Repeat("x", maxLine+1) + "\n", [][]string{nil}, "too big inline request"},
		{strings.Repeat("x", maxLine) + "\n", [][]string{{strings.Repeat("x", maxLine)}}, ""},
		{"*" + strings.Repeat("1", maxLine), [][]string{nil}, "too big mbulk count string"},
		{"*1\r\n$" + strings.Repeat("1", maxLine), [][]string{nil}, "too big bulk count string"},
		{"*" + strings.Repeat("1", maxLine-2), nil, ""},
	} {
		got, broken := decode([]byte(tt.in))
		if !reflect.DeepEqual(got, tt.want) || broken != tt.broken {
			t.Errorf("%s: got %q, broken %q; want %q, %q", short(tt.in), got, broken, tt.want, tt.broken)
		}
	}
}

// A request is refused as soon as it is known that it will be longer than the limit, whatever it is
// made of, and a value may be as long as its limit.
func TestLongRequests(t *testing.T) {
	data := make([]byte, 0, maxRequest) // whose zero bytes nobody looks at
	data = append(data, "*5\r\n"...)
	for n := 1; n <= 4; n++ {
		data = append(data, "$16777216\r\n"...)
		if n < 4 {
			data = data[:len(data)+maxValue+2]
		}
		r := new(requests)
		advance, frame, err := r.Decode(data)
		if broken := r.broken != ""; err != nil || broken != (n == 4) || broken != (frame != nil) || broken != (advance > 0) {
			t.Errorf("%d arguments of 16 MiB: got %d, %d bytes, %v, broken %q", n, advance, len(frame), err, r.broken)
		}
	}
	data = append(data[:0], "*1\r\n$16777216\r\n"...)
	data = data[:len(data)+maxValue+2]
	r := new(requests)
	if n, _, err := r.Decode(data); n != len(data) || err != nil || len(r.args) != 1 || len(r.args[0]) != maxValue {
		t.Errorf("a value of 16 MiB: got %d of %d bytes, %v, broken %q", n, len(data), err, r.broken)
	}
}

// A request that announces much costs nothing until it comes.
func TestAnnouncedIsNotBelieved(t *testing.T) {
	r := new(requests)
	in := []byte("*1048576\r\n$1\r\na\r\n$16777216\r\n")
	if n := testing.AllocsPerRun(10, func() { _, _, _ = r.Decode(in) }); n > 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// A request may have 1,048,576 arguments. In pieces each argument is read once: a piece that
// completes nothing is looked at from where the one before it has ended.
func TestManyArgumentsInPieces(t *testing.T) {
	const argument = "$1\r\na\r\n"
	all := []byte(fmt.Sprintf("*%d\r\n", maxArgs) + strings.Repeat(argument, maxArgs))
	r := new(requests)
	for end, seen := 100, 0; ; end, seen = min(len(all), end+32<<10), end {
		clear(all[max(1, seen-33<<10):max(1, seen-100)]) // what has been read is not read again
		n, _, err := r.DecodeFrom(all[:end], seen)
		if end == len(all) {
			if n != len(all) || err != nil || len(r.args) != maxArgs {
				t.Errorf("got %d bytes, %d arguments, %v; want %d, %d", n, len(r.args), err, len(all), maxArgs)
			}
			return
		}
		if n != 0 || err != nil {
			t.Fatalf("got %d, %v after %d bytes, broken %q", n, err, end, r.broken)
		}
	}
}

// FuzzRequests wants what is decoded in two pieces to be what is decoded whole, and a request that
// is written anew from its arguments to have the same ones.
func FuzzRequests(f *testing.F) {
	for _, s := range conversations {
		f.Add([]byte(s), uint(len(s)/2))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint) {
		at := int(cut % uint(len(data)+1))
		whole, broken := decode(data)
		pieces, brokenToo := decode(data[:at], data[at:])
		if !reflect.DeepEqual(whole, pieces) || broken != brokenToo {
			t.Fatalf("%q: whole %q, %q; cut at %d %q, %q", data, whole, broken, at, pieces, brokenToo)
		}
		for i, args := range whole {
			if args == nil {
				if i != len(whole)-1 || broken == "" {
					t.Fatalf("%q: request %d has no arguments, broken %q", data, i, broken)
				}
				continue
			}
			again, broken := decode([]byte(wire(args...)))
			if len(again) != 1 || !reflect.DeepEqual(again[0], args) || broken != "" {
				t.Fatalf("%q: got %q, %q", args, again, broken)
			}
		}
	})
}
