package redisgroup

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// receiptTime is how long a receipt is kept, see publish.lua.
const receiptTime = time.Hour

var replicationID = regexp.MustCompile(`master_replid:([0-9a-f]{12})`)

// prepare asks for the server's identity, as append.lua has it, before anything is sent to it.
// And it puts a receipt where this node has none, or had one long ago, which is then kept for
// longer: one that is not there later has been lost, and the messages with it.
func (w *worker) prepare(batch []*outgoing) error {
	hub, client, began := w.lane.hub, w.link.client, time.Now()
	var answered redis.Error // of which the messages will tell
	if w.server == "" {
		info, err := client.Info(hub.ctx, "replication").Result()
		if err != nil && !errors.As(err, &answered) {
			return err
		}
		w.server = "-"
		if m := replicationID.FindStringSubmatch(info); m != nil {
			w.server = m[1]
		}
	}
	puts, pipe := make(map[int]*redis.BoolCmd), client.Pipeline()
	for _, o := range batch {
		if o.op == opOrdered && !o.unclear && puts[o.bucket] == nil && began.Sub(hub.receipts[o.bucket]) > receiptTime/2 {
			key := hub.keys.receipt(o.bucket, hub.node)
			puts[o.bucket] = pipe.SetNX(hub.ctx, key, 0, receiptTime)
			pipe.PExpire(hub.ctx, key, receiptTime)
		}
	}
	if len(puts) == 0 {
		return nil
	}
	_, _ = pipe.Exec(hub.ctx)
	for bucket, put := range puts {
		if err := put.Err(); err == nil {
			hub.receipts[bucket] = began
		} else if !errors.As(err, &answered) {
			return err
		}
	}
	return nil
}

// streamArgs are the arguments of scripts that say how streams are written, see append.lua.
func (h *Hub) streamArgs() []any {
	return []any{h.masters.publish(), h.keys.database, h.cfg.History, h.cfg.HistoryTime.Milliseconds()}
}

// publishArgs are those of publish.lua for a segment. The number of the command is larger than that
// of any before, also of those that this one repeats.
func (w *worker) publishArgs(s *segment) (keys []string, args []any) {
	hub, k, bucket := w.lane.hub, &w.lane.hub.keys, s.items[0].bucket
	s.node = hub.keeper.name()
	keys = append(make([]string, 0, 1+len(s.items)), k.receipt(bucket, hub.node))
	number, again := hub.commands.Add(1), 0
	if slices.ContainsFunc(s.items, func(o *outgoing) bool { return o.unclear }) {
		again = 1
	}
	args = append(append(make([]any, 0, 8+3*len(s.items)), number, again), hub.streamArgs()...)
	args = append(args, w.server, s.node)
	for _, o := range s.items {
		keys = append(keys, o.key)
		from := hub.node + ":" + strconv.FormatUint(o.seq, 10)
		switch {
		case o.op == opPeek:
			args = append(args, "p", "", "")
		case o.op == opOrdered:
			args = append(args, "m", w.known(o, number, again == 1), fmt.Appendf(nil, "%s %s m\n%s", w.server, from, o.data))
		default:
			sign := "-"
			if o.here {
				sign = "+"
			}
			keys = append(keys, k.members(o.place, s.node), k.users(o.place), k.tombstone(bucket, s.node), k.joined(bucket, s.node))
			if !hub.masters.sharded() {
				keys = append(keys, k.nodes())
			}
			args = append(args, sign, o.data, from)
		}
	}
	return keys, args
}

// known is what publish.lua is told that this node knows of the stream of a message, or of what has
// become of the message before.
func (w *worker) known(o *outgoing, number uint64, again bool) string {
	if o.unclear {
		return o.sentTo + " " + strconv.FormatUint(o.sentIn, 10)
	}
	o.sentTo, o.sentIn = w.server, number
	if again || o.server != w.server {
		return ""
	}
	return o.next
}

// settlePublished tells those who wait what publish.lua says.
func (w *worker) settlePublished(again []*outgoing, s *segment) ([]*outgoing, error) {
	hub := w.lane.hub
	answers, err := s.cmd.StringSlice()
	if err != nil || len(answers) != len(s.items)+1 {
		return again, fmt.Errorf("%w: %w", errAnswer, err)
	}
	w.server = answers[len(s.items)]
	for i, o := range s.items {
		text, failed := strings.CutPrefix(answers[i], "!")
		at, _ := ParsePosition(text)
		switch {
		case failed && classifyAnswer(text) == later:
			again = w.retry(again, []*outgoing{o}, errors.New(text), later)
		case failed:
			hub.abandon(o, errors.New(text))
		case text == "?":
			hub.abandon(o, ErrUncertain)
		case text == "DEAD":
			hub.keeper.rejoin(s.node)
		case o.op == opPeek:
			o.room.peeked(at)
		case o.op == opOrdered:
			hub.stats.published.Add(1)
			if o.done != nil {
				o.done(at, nil)
			}
		}
	}
	return again, nil
}
