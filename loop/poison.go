package loop

import "bytes"

// poisonText is what bytes become that were lent, over and over: who keeps them sees it.
const poisonText = "LENT NO LONGER. "

// deliver has the handler take a message. With Server.Poison it lends a copy, whatever the codec
// made the message of: the loop's buffer, its own, or a constant.
func (c *Conn) deliver(msg []byte) error {
	if !c.loop.poisons {
		return c.handler.OnMessage(c, msg)
	}
	lent := bytes.Clone(msg)
	if lent == nil {
		lent = []byte{}
	}
	defer func() {
		for n := 0; n < len(lent); {
			n += copy(lent[n:], poisonText)
		}
	}()
	return c.handler.OnMessage(c, lent)
}
