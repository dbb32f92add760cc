package codec_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/loopwheel/loopwheel/codec"
)

// The three situations that Decode tells apart.
func ExampleCodec() {
	c := codec.Lines{}
	for _, data := range []string{"hel", "hello\n", "hello\nworld\n"} {
		advance, frame, err := c.Decode([]byte(data))
		fmt.Printf("%q: advance %d, frame %q, %v\n", data, advance, frame, err)
	}
	// Output:
	// "hel": advance 0, frame "", <nil>
	// "hello\n": advance 6, frame "hello", <nil>
	// "hello\nworld\n": advance 6, frame "hello", <nil>
}

// commands has short lines come in, so that no peer can make us keep much, and long ones go out. A
// codec's own Max holds for both. With a DecodeFrom that calls that of in, what comes in many
// pieces would not be searched anew for each.
type commands struct{ in, out codec.Lines }

func (c commands) Decode(data []byte) (int, []byte, error) { return c.in.Decode(data) }

func (c commands) AppendFrame(dst, line []byte) ([]byte, error) { return c.out.AppendFrame(dst, line) }

// A limit for each direction.
func ExampleCodec_twoLimits() {
	c := commands{in: codec.Lines{Max: 512}, out: codec.Lines{Max: 1 << 20}}
	long := make([]byte, 1000)
	answer, err := c.AppendFrame(nil, long)
	fmt.Println(len(answer), err)
	_, _, err = c.Decode(answer)
	fmt.Println(err)
	// Output:
	// 1001 <nil>
	// codec: frame too long: 1000 bytes, limit 512
}

func ExampleRaw() {
	decodeAndPrint(codec.Raw{}, "whatever", " comes")
	// Output: "whatever" " comes"
}

func ExampleLines() {
	decodeAndPrint(codec.Lines{}, "GET a\r\nGET b\nGE", "T c\n\n")
	// Output: "GET a" "GET b" "GET c" ""
}

func ExampleLines_tooLong() {
	_, _, err := codec.Lines{Max: 10}.Decode([]byte("no newline in sight"))
	fmt.Println(errors.Is(err, codec.ErrTooLong), err)
	// Output: true codec: frame too long: 19 bytes, limit 10
}

func ExampleDelimiter() {
	decodeAndPrint(codec.Delimiter{Delim: "\r\n"}, "a\nb\r", "\nc\r\n")
	// Output: "a\nb" "c"
}

func ExampleFixed() {
	decodeAndPrint(codec.Fixed{Size: 3}, "abcdefgh")
	// Output: "abc" "def"
}

func ExampleVarint() {
	wire, _ := codec.Varint{}.AppendFrame(nil, make([]byte, 300))
	fmt.Printf("% x and %d more bytes\n", wire[:2], len(wire)-2)
	decodeAndPrint(codec.Varint{}, "\x05hello\x00")
	// Output:
	// ac 02 and 300 more bytes
	// "hello" ""
}

func ExampleLength() {
	wire, _ := codec.Length{}.AppendFrame(nil, []byte("hello"))
	fmt.Printf("%q\n", wire)
	decodeAndPrint(codec.Length{}, string(wire), "\x00\x00\x00\x00")
	// Output:
	// "\x00\x00\x00\x05hello"
	// "hello" ""
}

// A magic number, a type and a length that counts the whole frame, all of which the handler wants
// to see.
func ExampleLength_header() {
	c := codec.Length{Offset: 3, Size: 2, Adjust: -5, Strip: codec.StripNone}
	decodeAndPrint(c, "\xca\xfe\x07\x00\x0aHELLO")

	// To send, leave room for the length, and AppendFrame writes it.
	wire, _ := c.AppendFrame(nil, []byte("\xca\xfe\x08\x00\x00ok"))
	fmt.Printf("%q\n", wire)
	// Output:
	// "\xca\xfe\a\x00\nHELLO"
	// "\xca\xfe\b\x00\aok"
}

func ExampleLength_Validate() {
	fmt.Println(codec.Length{Size: 5}.Validate())
	// Output: codec: bad configuration: Length.Size 5 is not 1, 2, 3, 4 or 8 (0 means 4)
}

// A codec needs no server: what has arrived is decoded until less than a frame is left, and that is
// kept for what comes next.
func ExampleCodec_reader() {
	c, in := codec.Lines{}, strings.NewReader("one\ntwo\nthree\nfo")
	var data []byte
	for {
		piece := make([]byte, 6)
		size, err := in.Read(piece)
		data = append(data, piece[:size]...)
		for len(data) > 0 {
			n, frame, err := c.Decode(data)
			if err != nil {
				fmt.Println(err)
				return
			}
			if n == 0 {
				break
			}
			if frame != nil {
				fmt.Printf("%q\n", frame)
			}
			data = data[n:]
		}
		if err != nil {
			break
		}
	}
	fmt.Println(len(data), "bytes left over")
	// Output:
	// "one"
	// "two"
	// "three"
	// 2 bytes left over
}

// decodeAndPrint decodes pieces and prints the frames on one line.
func decodeAndPrint(c codec.Codec, pieces ...string) {
	var data []byte
	sep := ""
	for _, p := range pieces {
		data = append(data, p...)
		for len(data) > 0 {
			n, frame, err := c.Decode(data)
			if err != nil {
				fmt.Print(sep, err)
				return
			}
			if n == 0 {
				break
			}
			if frame != nil {
				fmt.Printf("%s%q", sep, frame)
				sep = " "
			}
			data = data[n:]
		}
	}
	fmt.Println()
}
