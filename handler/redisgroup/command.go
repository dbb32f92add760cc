package redisgroup

import (
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// receiptTime is how long a receipt is kept, see publish.lua.
const receiptTime = time.Hour

// introduce puts a receipt where this node has none, or had one long ago, which is then kept for
// longer: one that is not there later has been lost, and the messages with it. l.sending is held.
func (l *link) introduce(batch []*outgoing) error {
	began, known := time.Now(), l.hub.topo.receipts
	puts := make(map[int]*redis.BoolCmd)
	pipe := l.client.Pipeline()
	for _, o := range batch {
		if o.op == opOrdered && !o.unclear && puts[o.bucket] == nil && began.Sub(known[o.bucket]) > receiptTime/2 {
			key := l.hub.keys.receipt(o.bucket, l.hub.node)
			puts[o.bucket] = pipe.SetNX(l.hub.ctx, key, 0, receiptTime)
			pipe.PExpire(l.hub.ctx, key, receiptTime)
		}
	}
	if len(puts) == 0 {
		return nil
	}
	_, _ = pipe.Exec(l.hub.ctx)
	for bucket, put := range puts {
		var refused redis.Error // of which the messages will tell
		if err := put.Err(); err == nil {
			known[bucket] = began
		} else if !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

// common are the first arguments of scripts that publish: the number of the command, which is
// larger than that of any before, also of those that this one repeats.
func (l *link) common(s *segment) []any {
	again := 0
	for _, o := range s.items {
		if o.unclear {
			again = 1
		}
	}
	cfg := &l.hub.cfg
	return []any{l.hub.commands.Add(1), again, l.hub.topo.command(), cfg.History, cfg.HistoryTime.Milliseconds()}
}

func (l *link) publishArgs(s *segment) ([]string, []any) {
	keys := make([]string, 1, 1+len(s.items))
	keys[0] = l.hub.keys.receipt(s.items[0].bucket, l.hub.node)
	args := append(make([]any, 0, 6+2*len(s.items)), l.common(s)...)
	number, again := args[0].(uint64), args[1] == 1
	args = append(args, l.server)
	for _, o := range s.items {
		known := ""
		switch {
		case o.unclear:
			known = o.sentTo + " " + strconv.FormatUint(o.sentIn, 10)
		case !again && o.known.server == l.server:
			known = o.known.next
		}
		if !o.unclear {
			o.sentTo, o.sentIn = l.server, number
		}
		keys, args = append(keys, o.channel), append(args, known, l.entry(o))
	}
	return keys, args
}

// entry is a message as it is in the stream, see append.lua.
func (l *link) entry(o *outgoing) []byte {
	e := make([]byte, 0, len(l.server)+len(l.hub.node)+len(o.data)+26) // a number has at most 20 digits
	e = append(append(append(append(e, l.server...), ' '), l.hub.node...), ':')
	e = append(strconv.AppendUint(e, o.seq, 10), " m\n"...)
	return append(e, o.data...)
}

// from says who published o.
func (l *link) from(o *outgoing) string { return l.hub.node + ":" + strconv.FormatUint(o.seq, 10) }
