package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// savedVersion is the first byte of what Save returns. It changes when the rest does.
const savedVersion = 2

// errUnsaved is the error of a connection that is not in the middle of a conversation.
var errUnsaved = errors.New("websocket: the state can only be saved of a server's connection that is open")

// Save implements codec.Saver. A connection can go on elsewhere from the end of OnOpen until a
// close frame is sent or received, also between two fragments of a message. What OnOpen was given
// is not in it: OnOpen is not called again.
func (c *connCodec) Save() ([]byte, error) {
	if c.phase != open || c.request != nil || c.config.masked != 0 || len(c.reply) > 0 || len(c.beforeOpen) > 0 {
		return nil, errUnsaved
	}
	var flags byte
	for i, set := range []bool{c.deflate, c.fragmented, c.compressed} {
		if set {
			flags |= 1 << i
		}
	}
	b := []byte{savedVersion, flags, c.window, byte(c.kind), byte(c.sendNext)}
	b = binary.AppendUvarint(b, uint64(len(c.protocol)))
	return append(append(b, c.protocol...), c.message...), nil
}

// Restore implements codec.Saver.
func (c *connCodec) Restore(state []byte) error {
	if len(state) < 5 || state[0] != savedVersion {
		return fmt.Errorf("websocket: a saved state of another version, or none: % .8x", state)
	}
	flags, rest := state[1], state[5:]
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return errors.New("websocket: a saved state that is cut short")
	}
	protocol, message := rest[n:][:size], rest[n:][size:]
	fragmented := flags&2 != 0
	if len(message) > c.config.maxMessage() || len(message) > 0 && !fragmented || state[2] > maxWindow {
		return errors.New("websocket: a saved state that does not fit")
	}
	c.phase, c.peer, c.protocol = open, nil, string(protocol)
	c.deflate, c.fragmented, c.compressed = flags&1 != 0, fragmented, flags&4 != 0
	c.window, c.kind, c.sendNext = state[2], Kind(state[3]), Kind(state[4])
	c.message, c.valid = append([]byte(nil), message...), 0 // its text is checked anew
	return nil
}
