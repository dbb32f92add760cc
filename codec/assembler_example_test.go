package codec_test

import (
	"bytes"
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// continued is a codec of lines that go on in the next one if they end in a backslash. A line may
// be long, and so may the whole.
type continued struct {
	lines codec.Lines
	max   int    // of the whole
	parts []byte // what came before the last line; not nil: there is more to come
}

func (c *continued) New() codec.Codec { return &continued{lines: c.lines, max: c.max} }

func (c *continued) Decode(data []byte) (advance int, frame []byte, err error) {
	advance, line, err := c.lines.Decode(data)
	if err != nil || advance == 0 {
		return 0, nil, err
	}
	if len(c.parts)+len(line) > c.max {
		return 0, nil, codec.ErrTooLong
	}
	part, goesOn := bytes.CutSuffix(line, []byte(`\`))
	if goesOn {
		c.parts = append(append([]byte{}, c.parts...), part...)
		return advance, nil, nil
	}
	frame, c.parts = append(c.parts, line...), nil
	if frame == nil {
		frame = line // empty
	}
	return advance, frame, nil
}

func (c *continued) AppendFrame(dst, frame []byte) ([]byte, error) {
	if bytes.HasSuffix(frame, []byte(`\`)) {
		return dst, codec.ErrMalformed
	}
	return c.lines.AppendFrame(dst, frame)
}

// Unfinished implements codec.Assembler.
func (c *continued) Unfinished() (size int, ok bool) { return len(c.parts), c.parts != nil }

// A codec that holds the parts of a message tells how much that is, and that the rest is owed: a
// server counts it, and closes the connection of a peer that takes too long.
func ExampleAssembler() {
	c := &continued{max: 1000}
	for _, line := range []string{"loop\\\n", "wheel\\\n", "!\n", "\\\n"} {
		if _, frame, _ := c.Decode([]byte(line)); frame != nil {
			fmt.Printf("%q\n", frame)
		}
		held, unfinished := c.Unfinished()
		fmt.Printf("%d bytes held, unfinished: %t\n", held, unfinished)
	}
	// Output:
	// 4 bytes held, unfinished: true
	// 9 bytes held, unfinished: true
	// "loopwheel!"
	// 0 bytes held, unfinished: false
	// 0 bytes held, unfinished: true
}
