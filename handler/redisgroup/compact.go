package redisgroup

// minSweep is how long a queue must be to be compacted. Then it is when it is twice as long as what was
// left: so each thing that is added pays for a few that are looked at.
const minSweep = 256

// compact drops what need not be said any more. b.mu is held.
func (b *outbox) compact() {
	b.queue, b.size = compacted(b.queue), 0
	for _, o := range b.queue {
		b.size += o.size()
	}
	b.sweepAt = max(minSweep, 2*len(b.queue))
}

// A someone is a user in a room.
type someone struct{ channel, user string }

// A change is the one that is to be told of someone.
type change struct {
	at int // in the queue; -1: none
	// Redis does not know that the user is here, unless that is told: then it need not be told at
	// all of one who has come and gone.
	unknown bool
}

// compacted returns queue, in its order, without peeks of rooms that were forgotten, and with one
// change of each user in each room at most: while Redis is away users come and go, and rooms are
// joined and left, as often as clients like. What Redis may have got already stays as it is.
func compacted(queue []*outgoing) []*outgoing {
	dropped := make([]bool, len(queue))
	changes := make(map[someone]*change)
	for i, o := range queue {
		switch {
		case o.op == opPeek:
			dropped[i] = o.room.forgotten.Load()
		case presence(o.op):
			who := someone{o.channel, string(o.data)}
			if changes[who] == nil {
				changes[who] = &change{at: -1}
			}
			changes[who].next(queue, dropped, i)
		}
	}
	var left []*outgoing
	for i, o := range queue {
		if !dropped[i] {
			left = append(left, o)
		}
	}
	return left
}

// next takes the change at i, which follows those before.
func (c *change) next(queue []*outgoing, dropped []bool, i int) {
	o := queue[i]
	switch {
	case o.unclear: // as what follows is known to nobody, it is told whatever it is
		c.at, c.unknown = -1, false
	case c.at < 0:
		c.at, c.unknown = i, c.unknown || o.op == opCome && !o.retold
	case queue[c.at].op == o.op:
		dropped[i] = true
	case c.unknown:
		dropped[c.at], dropped[i] = true, true
		c.at = -1
	default:
		dropped[c.at] = true
		c.at = i
	}
}
