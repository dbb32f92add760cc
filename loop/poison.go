package loop

// poisonText is what bytes become that were lent, over and over: who keeps them sees it.
const poisonText = "LENT NO LONGER. "

// deliver has the handler take a message.
func (c *Conn) deliver(msg []byte) error {
	if c.loop.poisons {
		return c.deliverCopy(msg)
	}
	return c.handler.OnMessage(c, msg)
}

// deliverCopy is deliver for Server.Debug.Poison. It lends a copy, whatever the codec made the
// message of: the loop's buffer, its own, or a constant.
func (c *Conn) deliverCopy(msg []byte) error {
	lent := append(make([]byte, 0, len(msg)), msg...)
	defer func() {
		for n := 0; n < len(lent); {
			n += copy(lent[n:], poisonText)
		}
	}()
	return c.handler.OnMessage(c, lent)
}
