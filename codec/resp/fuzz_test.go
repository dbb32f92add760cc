package resp_test

import (
	"bytes"
	"testing"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// FuzzRequests wants what is decoded in two pieces to be what is decoded whole, and a request that
// is written anew from its arguments to have the same ones.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING \"a\\x41\" 'b'\r\n", "*0\r\n*1\r\n$0\r\n\r\n", "*1\r\n$-1\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$10\r\n0123456789\r\n", "\r\n\r\n", "*1\r\n$99999999999\r\n",
	} {
		f.Add([]byte(s), uint(len(s)/2))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint) {
		cfg := resp.Server{MaxRequest: 1 << 16}
		whole := cfg.New().(*resp.Requests)
		n, frame, err := whole.Decode(data)
		parts := cfg.New().(*resp.Requests)
		at := int(cut % uint(len(data)+1))
		if k, _, err := parts.Decode(data[:at]); k == 0 && err == nil && at > 0 {
			if m, again, errAgain := parts.DecodeFrom(data, at); m != n || !bytes.Equal(again, frame) || (err == nil) != (errAgain == nil) && at == len(data) {
				t.Fatalf("whole: %d %q %v, cut at %d: %d %q %v", n, frame, err, at, m, again, errAgain)
			}
		}
		if err != nil || frame == nil {
			return
		}
		if len(whole.Args()) == 0 {
			t.Fatalf("no arguments in %q", frame)
		}
		if size, ok := cfg.New().(*resp.Requests).FrameSize(data); ok && size != n {
			t.Fatalf("FrameSize of %q is %d, but its length is %d", data, size, n)
		}
		wire := resp.AppendCommand(nil, whole.Args()...)
		second := resp.Server{}.New().(*resp.Requests)
		if m, _, err := second.Decode(wire); m != len(wire) || err != nil || len(second.Args()) != len(whole.Args()) {
			t.Fatalf("%q written anew is %q: %d, %v", frame, wire, m, err)
		}
		for i, a := range second.Args() {
			if !bytes.Equal(a, whole.Args()[i]) {
				t.Fatalf("argument %d of %q is %q, and %q", i, frame, whole.Args()[i], a)
			}
		}
	})
}

// FuzzReplies wants what Client takes for a whole reply to be parsed, unless it is nested too deep.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{"+OK\r\n", "*2\r\n:1\r\n$2\r\nab\r\n", "|1\r\n+a\r\n:1\r\n%1\r\n+k\r\n_\r\n", "$-1\r\n", "=5\r\ntxt:a\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, frame, err := resp.Client{MaxReply: 1 << 16}.New().Decode(data)
		if err != nil || n == 0 {
			return
		}
		if _, err := resp.Parse(frame); err != nil && bytes.Count(frame, []byte("\n")) < 100 {
			t.Fatalf("%q: %v", frame, err)
		}
	})
}
