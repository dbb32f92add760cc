package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/codectest"
	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/framing"
)

func command(args ...string) []byte { return resp.AppendCommand(nil, args...) }

// fill returns a request of n bytes on the wire, if there is one.
func fill(n int) []byte {
	for digits := 1; digits < 9; digits++ {
		size := n - len("*1\r\n$\r\n\r\n") - digits
		if size >= 0 && len(fmt.Sprint(size)) == digits {
			return command(strings.Repeat("x", size))
		}
	}
	return nil
}

func TestServerConformance(t *testing.T) {
	codectest.Suite{
		New:  func() codec.Codec { return resp.Server{MaxRequest: 5000, MaxInline: 100} },
		Peer: func() codec.Codec { return resp.Client{MaxReply: 5000} },
		Samples: [][]byte{
			command("PING"), command("SET", "k", "v"), command(""), command("a", "", "\r\n"),
			command(strings.Repeat("x", 1000)), []byte("PING\r\n"), []byte("get 'a b'\n"),
		},
		Fill: fill,
		TooLong: [][]byte{
			[]byte("*1\r\n$536870913\r\n"), []byte("*2147483648\r\n"), []byte("*1\r\n$6000\r\n"),
			bytes.Repeat([]byte("x"), 101), append(bytes.Repeat([]byte("x"), 101), '\n'),
			[]byte("*" + strings.Repeat("1", 101)), []byte("*1\r\n$" + strings.Repeat("1", 101)),
		},
		Malformed: [][]byte{
			[]byte("*x\r\n"), []byte("*1\r\n:1\r\n"), []byte("*1\r\n$-1\r\n"), []byte("*1\r\n$x\r\n"),
			[]byte("*1\r\n$1\r\nabc"), []byte("\"abc\r\n"), []byte("'a'b\r\n"), []byte("*99999999999999999999999\r\n"),
		},
	}.Run(t)
}

func TestClientConformance(t *testing.T) {
	v := resp.RESP3
	nested := resp.AppendArray(resp.AppendArray(nil, 2), 1)
	codectest.Suite{
		New:  func() codec.Codec { return resp.Client{MaxReply: 5000} },
		Peer: func() codec.Codec { return resp.Server{MaxRequest: 5000} },
		Samples: [][]byte{
			resp.AppendSimple(nil, "OK"), resp.AppendError(nil, "ERR no"), resp.AppendInt(nil, -12),
			resp.AppendBulk(nil, "a\r\nb"), resp.AppendBulk(nil, ""), resp.AppendArray(nil, 0),
			resp.AppendBulk(resp.AppendInt(nested, 1), "x"), v.AppendNull(nil),
			resp.RESP2.AppendNull(nil), resp.RESP2.AppendNullArray(nil), v.AppendDouble(nil, 1.5),
			v.AppendBool(nil, true), resp.AppendInt(resp.AppendInt(v.AppendMap(nil, 1), 1), 2),
			v.AppendVerbatim(nil, "txt", "hello"), resp.AppendInt(v.AppendPush(nil, 1), 1),
			[]byte("|1\r\n+ttl\r\n:3600\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n"), []byte("(123\r\n"),
		},
		Fill: func(n int) []byte {
			if frame := fill(n + len("*1\r\n")); frame != nil {
				return frame[len("*1\r\n"):]
			}
			return nil
		},
		TooLong:   [][]byte{[]byte("$6000\r\n"), append([]byte("+"), bytes.Repeat([]byte("x"), 6000)...)},
		Malformed: [][]byte{[]byte("x"), []byte("$x\r\n"), []byte("*-2\r\n"), []byte("%-1\r\n"), []byte("_x\r\n"), []byte("$1\r\nabc")},
	}.Run(t)
}

// decode returns the arguments of each request in data.
func decode(t *testing.T, cfg resp.Server, data string) (requests [][]string, err error) {
	t.Helper()
	r := cfg.New().(*resp.Requests)
	for rest := []byte(data); len(rest) > 0; {
		n, frame, err := r.Decode(rest)
		if err != nil || n == 0 {
			return requests, err
		}
		if rest = rest[n:]; frame == nil {
			continue
		}
		var args []string
		for _, a := range r.Args() {
			args = append(args, string(a))
		}
		requests = append(requests, args)
	}
	return requests, nil
}

func TestArgs(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want [][]string
	}{
		{"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", [][]string{{"GET", "k"}}},
		{"*0\r\n*-1\r\n\r\n\n*1\r\n$0\r\n\r\n", [][]string{{""}}},
		{"PING\r\nECHO hi\n", [][]string{{"PING"}, {"ECHO", "hi"}}},
		{"set \"a\\x41\\n\\\"\" 'it\\'s \\n' p\"q\"\r\n", [][]string{{"set", "aA\n\"", "it's \\n", "pq"}}},
		{"  a\t b  \r\n", [][]string{{"a", "b"}}},
		{"*1\r\n$4\r\nPI\r\n\r\n*1\r\n$1\r", [][]string{{"PI\r\n"}}},
	} {
		got, err := decode(t, resp.Server{}, tt.in)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%q: got %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

// The words are those of redis-server, which clients and tests know.
func TestErrors(t *testing.T) {
	for in, want := range map[string]string{
		"*3000000000\r\n":                      "invalid multibulk length",
		"*abc\r\n":                             "invalid multibulk length",
		"*1\r\nfoo\r\n":                        "expected '$', got 'f'",
		"*1\r\n$-10\r\n":                       "invalid bulk length",
		"*1\r\n$2000000000\r\n":                "invalid bulk length",
		"*1\r\n$536870913\r\n":                 "invalid bulk length",
		"set \"\"\"test-key\"\"\"\n":           "unbalanced quotes in request",
		strings.Repeat("x", 70000):             "too big inline request",
		"*" + strings.Repeat("1", 70000):       "too big mbulk count string",
		"*1\r\n$" + strings.Repeat("1", 70000): "too big bulk count string",
	} {
		_, err := decode(t, resp.Server{}, in)
		var e *resp.ProtocolError
		if !errors.As(err, &e) || e.Reason != want {
			t.Errorf("%.20q: got %v, want %s", in, err, want)
		}
		r := resp.Server{}.New().(*resp.Requests)
		if got := string(r.AppendFarewell(nil, err)); got != "-ERR Protocol error: "+want+"\r\n" {
			t.Errorf("%.20q: the farewell is %q", in, got)
		}
	}
	if got := (&resp.Requests{}).AppendFarewell(nil, nil); got != nil {
		t.Errorf("a farewell without an error: %q", got)
	}
}

func TestUnauthenticated(t *testing.T) {
	r := resp.Server{}.New().(*resp.Requests)
	r.Unauthenticated = true
	for in, want := range map[string]string{
		"*11\r\n":          "unauthenticated multibulk length",
		"*1\r\n$16385\r\n": "unauthenticated bulk length",
	} {
		if _, _, err := r.Decode([]byte(in)); err == nil || err.Error() != "Protocol error: "+want {
			t.Errorf("%q: %v", in, err)
		}
	}
	inline := []byte("1 2 3 4 5 6 7 8 9 a b\n")
	if n, _, err := r.Decode(inline); n != len(inline) || err != nil {
		t.Error(n, err)
	}
	r.Unauthenticated = false
	if n, _, err := r.Decode([]byte("*11\r\n")); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// A request that announces much costs nothing until it comes.
func TestAnnouncedIsNotBelieved(t *testing.T) {
	r := resp.Server{}.New()
	in := []byte("*2147483647\r\n$1\r\na\r\n")
	if n := testing.AllocsPerRun(10, func() { _, _, _ = r.Decode(in) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Arguments without end are refused when what is kept of them, their places included, is what a
// peer may cost. What a client may send depends on its bytes alone.
func TestArgumentsCountForMoreThanTheirBytes(t *testing.T) {
	const room, argument = 1 << 20, "$0\r\n\r\n"
	request := func(announced, n int) []byte {
		return []byte(fmt.Sprintf("*%d\r\n", announced) + strings.Repeat(argument, n))
	}
	fits := 64 + (room-64*len(argument)-20)/(len(argument)+48)
	whole, endless := request(fits, fits), request(math.MaxInt32, fits+2)
	for _, piece := range []int{1000, len(endless)} {
		r := resp.Server{MaxRequest: room}.New().(*resp.Requests)
		var err error
		for end, seen := 0, 0; end < len(endless) && err == nil; seen = end {
			end = min(end+piece, len(endless))
			_, _, err = r.DecodeFrom(endless[:end], seen)
		}
		if !errors.Is(err, codec.ErrTooLong) {
			t.Errorf("in pieces of %d: %v", piece, err)
		}
	}
	r := resp.Server{MaxRequest: room}.New().(*resp.Requests)
	if n, _, err := r.Decode(whole); n != len(whole) || err != nil || len(r.Args()) != fits {
		t.Errorf("%d arguments: %d of %d bytes, %v", fits, n, len(whole), err)
	}
	if _, err := (resp.Client{MaxReply: len(whole)}).New().AppendFrame(nil, whole); err != nil {
		t.Errorf("a client: %v", err)
	}
	if _, err := (resp.Client{MaxReply: len(whole) - 1}).New().AppendFrame(nil, whole); !errors.Is(err, codec.ErrTooLong) {
		t.Errorf("a client: %v", err)
	}
}

func TestVersions(t *testing.T) {
	two, three := resp.RESP2, resp.RESP3
	for _, tt := range []struct{ got, want string }{
		{string(two.AppendNull(nil)), "$-1\r\n"}, {string(three.AppendNull(nil)), "_\r\n"},
		{string(two.AppendNullArray(nil)), "*-1\r\n"}, {string(three.AppendNullArray(nil)), "_\r\n"},
		{string(two.AppendMap(nil, 3)), "*6\r\n"}, {string(three.AppendMap(nil, 3)), "%3\r\n"},
		{string(two.AppendSet(nil, 3)), "*3\r\n"}, {string(three.AppendSet(nil, 3)), "~3\r\n"},
		{string(two.AppendPush(nil, 10)), "*10\r\n"}, {string(three.AppendPush(nil, 3)), ">3\r\n"},
		{string(two.AppendBool(nil, true)), ":1\r\n"}, {string(three.AppendBool(nil, false)), "#f\r\n"},
		{string(two.AppendBool(nil, false)), ":0\r\n"}, {string(three.AppendBool(nil, true)), "#t\r\n"},
		{string(two.AppendDouble(nil, 3)), "$1\r\n3\r\n"}, {string(three.AppendDouble(nil, -0.5)), ",-0.5\r\n"},
		{string(two.AppendVerbatim(nil, "txt", "a")), "$1\r\na\r\n"}, {string(three.AppendVerbatim(nil, "txt", "a")), "=5\r\ntxt:a\r\n"},
		{string(resp.AppendError(nil, "ERR a\r\nb")), "-ERR a  b\r\n"}, {string(resp.AppendBulkInt(nil, -42)), "$3\r\n-42\r\n"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func TestAppendFloat(t *testing.T) {
	for want, f := range map[string]float64{
		"0": 0, "-0": math.Copysign(0, -1), "3": 3, "-1.5": -1.5, "inf": math.Inf(1), "-inf": math.Inf(-1),
		"0.1": 0.1, "1e+20": 1e20, "1e-05": 1e-05, "0.0001": 0.0001, "nan": math.NaN(),
		"10000000000000000": 1e16, "1.7976931348623157e+308": math.MaxFloat64,
	} {
		if got := string(resp.AppendFloat(nil, f)); got != want {
			t.Errorf("%v: got %s, want %s", f, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	v, err := resp.Parse([]byte("|1\r\n+ttl\r\n:5\r\n*4\r\n%1\r\n+a\r\n:1\r\n$2\r\nhi\r\n-ERR no\r\n$-1\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Attr) != 2 || v.Attr[1].Int != 5 || len(v.Elems) != 4 || v.Elems[0].Elems[1].Int != 1 ||
		string(v.Elems[1].Str) != "hi" || v.Elems[2].Err().Error() != "ERR no" || !v.Elems[3].IsNull() || v.Err() != nil {
		t.Errorf("%+v", v)
	}
	if f, err := v.Elems[0].Elems[1].Float(); f != 1 || err != nil {
		t.Error(f, err)
	}
	for _, in := range []string{"", "?", "*1\r\n", "$5\r\nab\r\n", ":1\r\n:2\r\n", ":x\r\n", strings.Repeat("*1\r\n", 200) + ":1\r\n", "*2000000000\r\n"} {
		if v, err := resp.Parse([]byte(in)); err == nil {
			t.Errorf("%.20q: %+v", in, v)
		}
	}
}

func TestParseInt(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "-1": -1, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64} {
		if n, ok := resp.ParseInt(in); n != want || !ok {
			t.Error(in, n, ok)
		}
	}
	for _, in := range []string{"", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "1.0", "0x1"} {
		if n, ok := resp.ParseInt(in); ok {
			t.Error(in, n)
		}
	}
}

func TestConfiguration(t *testing.T) {
	for _, c := range []codec.Codec{resp.Server{MaxBulk: -1}, resp.Server{MaxRequest: -1}, resp.Client{MaxReply: -1}} {
		if _, err := framing.Compile(c); !errors.Is(err, codec.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, _, err := c.Decode([]byte("x")); err != resp.ErrNoConn {
			t.Error(err)
		}
		if _, err := c.AppendFrame(nil, nil); err != resp.ErrNoConn {
			t.Error(err)
		}
	}
}
