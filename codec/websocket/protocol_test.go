package websocket_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec/websocket"
)

// A protocolCase sends frames over a new connection and wants exactly these answers. If the last
// one is not a close, the test closes the connection itself, to see that nothing else comes.
type protocolCase struct {
	section string // of RFC 6455, or "7692 " and one of that
	name    string
	send    []frame
	want    []string
	raw     string // sent after the frames
}

const (
	violated = "close 1002"
	notUTF8  = "close 1007"
	tooLarge = "close 1009"
)

func protocolCases() []protocolCase {
	return slices.Concat(framingCases(), pingCases(), reservedCases(), fragmentCases(), utf8Cases(), closeCases(), limitCases())
}

// Framing: lengths in their three forms, of both kinds; masks.
func framingCases() (cases []protocolCase) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 1000, 65535, 65536, 65537, 100_000} {
		p := strings.Repeat("*", n)
		cases = append(cases,
			protocolCase{"5.2", fmt.Sprintf("text of %d bytes", n), []frame{text(p)}, []string{show("text", p)}, ""},
			protocolCase{"5.6", fmt.Sprintf("binary of %d bytes", n), []frame{binary(p)}, []string{show("binary", p)}, ""})
	}
	for _, f := range []struct {
		name string
		wire string
	}{
		{"a length of 0 in 16 bits", "\x81\xfe\x00\x00mask"},
		{"a length of 125 in 16 bits", "\x82\xfe\x00\x7dmask"},
		{"a length of 125 in 64 bits", "\x82\xff\x00\x00\x00\x00\x00\x00\x00\x7dmask"},
		{"a length of 65535 in 64 bits", "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xffmask"},
		{"a length with its highest bit set", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x01mask"},
		{"a length of all ones", "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask"},
		{"a ping with a 16-bit length", "\x89\xfe\x00\x05maskhello"},
	} {
		cases = append(cases, protocolCase{"5.2", f.name, nil, []string{violated}, f.wire})
	}
	for _, f := range []frame{text("x"), binary("x"), text(""), ping("x"), pong("x"), closing(1000, ""), begin("x")} {
		f.bare = true
		cases = append(cases, protocolCase{"5.1", fmt.Sprintf("an unmasked frame, opcode %d, %d bytes", f.op, len(f.payload)), []frame{f}, []string{violated}, ""})
	}
	return append(cases,
		protocolCase{"5.1", "an unmasked continuation", []frame{begin("x"), {fin: true, payload: "y", bare: true}}, []string{violated}, ""},
		protocolCase{"5.3", "a mask of zeros", nil, []string{`text "abc"`}, "\x81\x83\x00\x00\x00\x00abc"},
		protocolCase{"5.3", "a mask of ones", nil, []string{`text "abc"`}, "\x81\x83\xff\xff\xff\xff\x9e\x9d\x9c"},
		protocolCase{"5.2", "many small messages at once", slices.Repeat([]frame{text("a")}, 20), slices.Repeat([]string{`text "a"`}, 20), ""},
		protocolCase{"5.6", "text and binary by turns", []frame{text("a"), binary("b"), text("c")}, []string{`text "a"`, `binary "b"`, `text "c"`}, ""},
		protocolCase{"5.6", "binary that is not UTF-8", []frame{binary("\xff\xfe")}, []string{`binary "\xff\xfe"`}, ""},
	)
}

func pingCases() (cases []protocolCase) {
	for _, n := range []int{0, 1, 5, 124, 125} {
		p := strings.Repeat("\xfe", n)
		cases = append(cases,
			protocolCase{"5.5.2", fmt.Sprintf("a ping of %d bytes", n), []frame{ping(p)}, []string{show("pong", p)}, ""},
			protocolCase{"5.5.3", fmt.Sprintf("a pong of %d bytes that nobody asked for", n), []frame{pong(p), text("x")}, []string{`text "x"`}, ""})
	}
	for _, n := range []int{126, 127, 1000, 65536} {
		p := strings.Repeat("x", n)
		cases = append(cases,
			protocolCase{"5.5", fmt.Sprintf("a ping of %d bytes", n), []frame{ping(p)}, []string{violated}, ""},
			protocolCase{"5.5", fmt.Sprintf("a pong of %d bytes", n), []frame{pong(p)}, []string{violated}, ""},
			protocolCase{"5.5", fmt.Sprintf("a close of %d bytes", n), []frame{{fin: true, op: ws.OpClose, payload: "\x03\xe8" + p}}, []string{violated}, ""})
	}
	var pings []frame
	var pongs []string
	for i := range 10 {
		pings, pongs = append(pings, ping(fmt.Sprint(i))), append(pongs, fmt.Sprintf("pong %q", fmt.Sprint(i)))
	}
	return append(cases,
		protocolCase{"5.5.2", "ten pings", pings, pongs, ""},
		protocolCase{"5.5.2", "a ping before a message", []frame{ping("p"), text("x")}, []string{`pong "p"`, `text "x"`}, ""},
		protocolCase{"5.5.2", "a ping that the server sends", []frame{text("please ping"), pong("are you there?"), text("x")}, []string{`ping "are you there?"`, `text "x"`}, ""},
		protocolCase{"5.5.3", "a pong for another ping", []frame{text("please ping"), pong("no"), text("x")}, []string{`ping "are you there?"`, `text "x"`}, ""},
	)
}

// Reserved bits and opcodes.
func reservedCases() (cases []protocolCase) {
	ops := map[ws.OpCode]string{ws.OpText: "text", ws.OpBinary: "binary", ws.OpPing: "ping", ws.OpPong: "pong", ws.OpClose: "close"}
	for _, op := range []ws.OpCode{ws.OpText, ws.OpBinary, ws.OpPing, ws.OpPong, ws.OpClose} {
		for rsv := byte(1); rsv < 8; rsv++ {
			cases = append(cases, protocolCase{"5.2", fmt.Sprintf("%s with reserved bits %03b", ops[op], rsv),
				[]frame{text("before"), {fin: true, rsv: rsv, op: op}}, []string{`text "before"`, violated}, ""})
		}
	}
	for _, op := range []ws.OpCode{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		cases = append(cases,
			protocolCase{"5.2", fmt.Sprintf("reserved opcode %d", op), []frame{text("before"), {fin: true, op: op, payload: "x"}}, []string{`text "before"`, violated}, ""},
			protocolCase{"5.2", fmt.Sprintf("reserved opcode %d, empty, in a fragmented message", op), []frame{begin("x"), {fin: true, op: op}}, []string{violated}, ""})
	}
	return append(cases,
		protocolCase{"5.2", "a continuation with a reserved bit", []frame{begin("x"), {fin: true, rsv: 4, payload: "y"}}, []string{violated}, ""},
	)
}

// Fragments, with control frames between them.
func fragmentCases() (cases []protocolCase) {
	for _, op := range []ws.OpCode{ws.OpPing, ws.OpPong, ws.OpClose} {
		cases = append(cases,
			protocolCase{"5.4", fmt.Sprintf("a fragmented control frame, opcode %d", op), []frame{{op: op, payload: "\x03\xe8"}}, []string{violated}, ""},
			protocolCase{"5.4", fmt.Sprintf("a fragmented control frame, opcode %d, and its continuation", op), []frame{{op: op}, last("x")}, []string{violated}, ""},
			protocolCase{"5.5", fmt.Sprintf("a fragmented control frame, opcode %d, in a message", op), []frame{begin("a"), {op: op}, last("b")}, []string{violated}, ""})
	}
	bin := func(s string) frame { return frame{op: ws.OpBinary, payload: s} }
	return append(cases,
		protocolCase{"5.4", "two fragments", []frame{begin("a"), last("b")}, []string{`text "ab"`}, ""},
		protocolCase{"5.4", "two fragments of binary", []frame{bin("a"), last("b")}, []string{`binary "ab"`}, ""},
		protocolCase{"5.4", "five fragments", []frame{begin("a"), more("b"), more("c"), more("d"), last("e")}, []string{`text "abcde"`}, ""},
		protocolCase{"5.4", "empty fragments only", []frame{begin(""), more(""), last("")}, []string{`text ""`}, ""},
		protocolCase{"5.4", "empty fragments of binary only", []frame{bin(""), last("")}, []string{`binary ""`}, ""},
		protocolCase{"5.4", "something between empty fragments", []frame{begin(""), more("x"), last("")}, []string{`text "x"`}, ""},
		protocolCase{"5.4", "an empty first fragment", []frame{begin(""), last("x")}, []string{`text "x"`}, ""},
		protocolCase{"5.4", "an empty last fragment", []frame{begin("x"), last("")}, []string{`text "x"`}, ""},
		protocolCase{"5.4", "1000 fragments", append(append([]frame{begin("a")}, slices.Repeat([]frame{more("b")}, 998)...), last("c")), []string{show("text", "a"+strings.Repeat("b", 998)+"c")}, ""},
		protocolCase{"5.4", "a ping between fragments", []frame{begin("a"), ping("p"), last("b")}, []string{`pong "p"`, `text "ab"`}, ""},
		protocolCase{"5.4", "pings between all fragments", []frame{begin("a"), ping("1"), more("b"), ping("2"), last("c")}, []string{`pong "1"`, `pong "2"`, `text "abc"`}, ""},
		protocolCase{"5.4", "a pong between fragments", []frame{begin("a"), pong("p"), last("b")}, []string{`text "ab"`}, ""},
		protocolCase{"5.4", "a close between fragments", []frame{begin("a"), closing(1000, "")}, []string{"close 1000"}, ""},
		protocolCase{"5.4", "two fragmented messages", []frame{begin("a"), last("b"), begin("c"), last("d")}, []string{`text "ab"`, `text "cd"`}, ""},
		protocolCase{"5.4", "a fragmented message and a whole one", []frame{begin("a"), last("b"), text("c")}, []string{`text "ab"`, `text "c"`}, ""},
		protocolCase{"5.4", "text, then binary, in fragments", []frame{begin("a"), last("b"), bin("c"), last("d")}, []string{`text "ab"`, `binary "cd"`}, ""},
		protocolCase{"5.4", "fragments of 40,000 bytes", []frame{begin(strings.Repeat("a", 40_000)), last(strings.Repeat("b", 40_000))}, []string{show("text", strings.Repeat("a", 40_000)+strings.Repeat("b", 40_000))}, ""},
		protocolCase{"5.4", "a continuation of nothing", []frame{more("x")}, []string{violated}, ""},
		protocolCase{"5.4", "a last continuation of nothing", []frame{last("x")}, []string{violated}, ""},
		protocolCase{"5.4", "a continuation of nothing, empty", []frame{last("")}, []string{violated}, ""},
		protocolCase{"5.4", "a continuation after a whole message", []frame{text("a"), last("x")}, []string{`text "a"`, violated}, ""},
		protocolCase{"5.4", "a continuation after a fragmented message", []frame{begin("a"), last("b"), last("x")}, []string{`text "ab"`, violated}, ""},
		protocolCase{"5.4", "a whole text in a fragmented message", []frame{begin("a"), text("b")}, []string{violated}, ""},
		protocolCase{"5.4", "a whole binary in a fragmented message", []frame{begin("a"), binary("b")}, []string{violated}, ""},
		protocolCase{"5.4", "a second first fragment", []frame{begin("a"), begin("b")}, []string{violated}, ""},
		protocolCase{"5.4", "a second first fragment, after a ping", []frame{begin("a"), ping(""), begin("b")}, []string{`pong ""`, violated}, ""},
	)
}

// UTF-8 as RFC 3629 has it, in one frame, and cut at each place.
func utf8Cases() (cases []protocolCase) {
	for _, s := range []string{
		"κόσμε", "Hello-µ@ßöäüàá-UTF-8!!", "\x00", "\x7f", "\u0080", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff",
		"\ud7ff", "\ue000", "\ufffd", "\ufffe", "\ufeff", "日本語", "🙂🙃", "a\u0301",
	} {
		cases = append(cases, protocolCase{"5.6", fmt.Sprintf("UTF-8 %+q", s), []frame{text(s)}, []string{show("text", s)}, ""})
		if len(s) > 4 {
			continue
		}
		for i := 1; i < len(s); i++ {
			cases = append(cases, protocolCase{"5.6", fmt.Sprintf("UTF-8 %+q cut at %d", s, i), []frame{begin(s[:i]), last(s[i:])}, []string{show("text", s)}, ""})
		}
	}
	for _, s := range []string{
		"\x80", "\xbf", "\xc0", "\xc1", "\xf5", "\xfe", "\xff", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf",
		"\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xed\xa0\x80", "\xed\xbf\xbf",
		"\xed\xa0\x80\xed\xb0\x80", "\xf4\x90\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xc3\x28", "\xe2\x28\xa1", "\xf0\x28\x8c\xbc",
		"κόσμε\xed\xa0\x80edited", "ok\xff",
	} {
		cases = append(cases, protocolCase{"8.1", fmt.Sprintf("not UTF-8: %q", s), []frame{text(s)}, []string{notUTF8}, ""})
	}
	return append(cases,
		protocolCase{"8.1", "not UTF-8 in the second fragment", []frame{begin("ok"), last("\xff")}, []string{notUTF8}, ""},
		protocolCase{"8.1", "a character that the last fragment leaves open", []frame{begin("\xf0\x9f"), last("\x99")}, []string{notUTF8}, ""},
		protocolCase{"8.1", "a character that is closed wrongly", []frame{begin("\xf0\x9f"), last("x")}, []string{notUTF8}, ""},
		protocolCase{"8.1", "failing at the first bad fragment", []frame{begin("\xff")}, []string{notUTF8}, ""},
		protocolCase{"8.1", "failing in the middle", []frame{begin("a"), more("\xed\xa0"), more("never")}, []string{notUTF8}, ""},
		protocolCase{"5.6", "a character in four fragments", []frame{begin("\xf0"), more("\x9f"), more("\x99"), last("\x82")}, []string{`text "🙂"`}, ""},
		protocolCase{"5.6", "a character cut by a ping", []frame{begin("\xf0\x9f"), ping("p"), last("\x99\x82")}, []string{`pong "p"`, `text "🙂"`}, ""},
		protocolCase{"5.6", "a character cut by empty fragments", []frame{begin("\xf0\x9f"), more(""), last("\x99\x82")}, []string{`text "🙂"`}, ""},
	)
}

func closeCases() (cases []protocolCase) {
	for _, code := range []ws.StatusCode{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		cases = append(cases, protocolCase{"7.4", fmt.Sprintf("a close with code %d", code), []frame{closing(code, "bye")}, []string{fmt.Sprintf("close %d", code)}, ""})
	}
	for _, code := range []ws.StatusCode{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		cases = append(cases, protocolCase{"7.4.2", fmt.Sprintf("a close with code %d", code), []frame{closing(code, "bye")}, []string{violated}, ""})
	}
	raw := func(payload string) frame { return frame{fin: true, op: ws.OpClose, payload: payload} }
	return append(cases,
		protocolCase{"5.5.1", "a close without a code", []frame{raw("")}, []string{"close"}, ""},
		protocolCase{"5.5.1", "a close with half a code", []frame{raw("\x03")}, []string{violated}, ""},
		protocolCase{"5.5.1", "a close with the longest reason", []frame{closing(1000, strings.Repeat("x", 123))}, []string{"close 1000"}, ""},
		protocolCase{"5.5.1", "a close with a reason in UTF-8", []frame{closing(1000, "grüße")}, []string{"close 1000"}, ""},
		protocolCase{"8.1", "a close with a reason that is not UTF-8", []frame{raw("\x03\xe8\xff\xfe")}, []string{notUTF8}, ""},
		protocolCase{"8.1", "a close with a reason cut in a character", []frame{raw("\x03\xe8\xf0\x9f\x99")}, []string{notUTF8}, ""},
		protocolCase{"5.5.1", "a message after a close", []frame{closing(1000, ""), text("late")}, []string{"close 1000"}, ""},
		protocolCase{"5.5.1", "a ping after a close", []frame{closing(1000, ""), ping("late")}, []string{"close 1000"}, ""},
		protocolCase{"5.5.1", "a second close", []frame{closing(1000, ""), closing(1001, "")}, []string{"close 1000"}, ""},
		protocolCase{"5.5.1", "nonsense after a close", []frame{closing(1000, "")}, []string{"close 1000"}, "\xff\xff\xff\xff"},
		protocolCase{"7.1.2", "a message and a close", []frame{text("x"), closing(1000, "")}, []string{`text "x"`, "close 1000"}, ""},
		protocolCase{"7.1.2", "the server closes", []frame{text("please close")}, []string{"close 1000"}, ""},
		protocolCase{"7.1.2", "the server closes, a message follows", []frame{text("please close"), text("late")}, []string{"close 1000"}, ""},
		protocolCase{"7.4.2", "the server closes with a code", []frame{text("please close with 4001")}, []string{`close 4001 "you asked for it"`}, ""},
		protocolCase{"7.1.2", "the server closes and waits", []frame{text("please close and wait"), closing(4002, "")}, []string{`close 4002 "waiting"`}, ""},
		protocolCase{"7.1.2", "the server waits, messages and pings follow", []frame{text("please close and wait"), text("late"), begin("late"), ping("late"), last(""), closing(4002, "")}, []string{`close 4002 "waiting"`}, ""},
		protocolCase{"7.1.7", "the server waits, a violation follows", []frame{text("please close and wait"), {fin: true, op: 3}}, []string{`close 4002 "waiting"`}, ""},
		protocolCase{"7.1.7", "nothing is read after a violation", []frame{{fin: true, op: 3}, text("late"), ping("late")}, []string{violated}, ""},
	)
}

// maxMessage is the limit of the connections that cases use, and maxFrame that of their frames.
const maxMessage, maxFrame = 200_000, 150_000

func limitCases() []protocolCase {
	at, above := strings.Repeat("x", maxFrame), strings.Repeat("x", maxFrame+1)
	half := strings.Repeat("x", maxMessage/2)
	return []protocolCase{
		{"10.4", "a frame at the limit", []frame{binary(at)}, []string{show("binary", at)}, ""},
		{"10.4", "a frame above the limit", []frame{binary(above)}, []string{tooLarge}, ""},
		{"10.4", "a frame above the limit, its header only", nil, []string{tooLarge}, "\x82\xff\x00\x00\x00\x00\x00\x02\x49\xf1mask"},
		{"10.4", "a frame of 4 GiB, its header only", nil, []string{tooLarge}, "\x82\xff\x00\x00\x00\x01\x00\x00\x00\x00mask"},
		{"10.4", "a frame of 2^63-1 bytes, its header only", nil, []string{tooLarge}, "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffmask"},
		{"10.4", "a message at the limit", []frame{begin(half), last(half)}, []string{show("text", half+half)}, ""},
		{"10.4", "a message above the limit", []frame{begin(half), last(half + "x")}, []string{tooLarge}, ""},
		{"10.4", "a message above the limit, in three fragments", []frame{begin(half), more(half), last("x")}, []string{tooLarge}, ""},
		{"10.4", "a message above the limit after one at the limit", []frame{begin(half), last(half), begin(half), last(half + "x")}, []string{show("text", half+half), tooLarge}, ""},
		{"10.4", "a message of one frame after one at the limit", []frame{begin(half), last(half), binary(at)}, []string{show("text", half+half), show("binary", at)}, ""},
	}
}

func TestProtocol(t *testing.T) {
	s := start(t, &websocket.Codec{MaxMessage: maxMessage, MaxFrame: maxFrame, MaxSend: 2 * maxMessage})
	cases := protocolCases()
	t.Logf("%d cases", len(cases))
	for _, tc := range cases {
		t.Run(tc.section+" "+tc.name, func(t *testing.T) {
			t.Parallel()
			var wire []byte
			for _, f := range tc.send {
				wire = append(wire, f.wire()...)
			}
			wire = append(wire, tc.raw...)
			tc.run(t, s, [][]byte{wire})
			if len(wire) < 200 { // and in single bytes
				tc.run(t, s, slices.Collect(slices.Chunk(wire, 1)))
			}
		})
	}
}

func (tc *protocolCase) run(t *testing.T, s *server, pieces [][]byte) {
	c := s.open(t)
	defer c.Close()
	sent := make(chan struct{})
	go func() { // the server may close, or answer, before all is sent
		defer close(sent)
		for _, p := range pieces {
			if _, err := c.Write(p); err != nil {
				return
			}
		}
	}()
	for i, want := range tc.want {
		if got := c.next(); got != want {
			t.Fatalf("in %d pieces: answer %d is %s, want %s", len(pieces), i, got, want)
		}
	}
	<-sent
	if !strings.HasPrefix(tc.want[len(tc.want)-1], "close") {
		_, _ = c.Write(closing(1000, "").wire())
		if got := c.next(); got != "close 1000" {
			t.Fatalf("in %d pieces: after the last answer came %s", len(pieces), got)
		}
	}
	if got := c.next(); got != "EOF" {
		t.Errorf("in %d pieces: after the close came %s, want EOF", len(pieces), got)
	}
}
