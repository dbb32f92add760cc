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

// common are the first arguments of scripts that publish: the number of the command, which is
// larger than that of any before, also of those that this one repeats.
func (h *Hub) common(s *segment) []any {
	again := 0
	if slices.ContainsFunc(s.items, func(o *outgoing) bool { return o.unclear }) {
		again = 1
	}
	return append([]any{h.commands.Add(1), again}, h.streamArgs()...)
}

// streamArgs are the arguments of scripts that say how streams are written, see append.lua.
func (h *Hub) streamArgs() []any {
	return []any{h.masters.publish(), h.keys.database, h.cfg.History, h.cfg.HistoryTime.Milliseconds()}
}

func (w *worker) publishArgs(s *segment) ([]string, []any) {
	hub := w.lane.hub
	keys := make([]string, 1, 1+len(s.items))
	keys[0] = hub.keys.receipt(s.items[0].bucket, hub.node)
	args := append(make([]any, 0, 7+2*len(s.items)), hub.common(s)...)
	number, again := args[0].(uint64), args[1] == 1
	args = append(args, w.server)
	for _, o := range s.items {
		known := ""
		switch {
		case o.unclear:
			known = o.sentTo + " " + strconv.FormatUint(o.sentIn, 10)
		case !again && o.server == w.server:
			known = o.next
		}
		if !o.unclear {
			o.sentTo, o.sentIn = w.server, number
		}
		keys, args = append(keys, o.key), append(args, known, w.entry(o))
	}
	return keys, args
}

// entry is a message as it is in the stream, see append.lua.
func (w *worker) entry(o *outgoing) []byte {
	return fmt.Appendf(nil, "%s %s:%d m\n%s", w.server, w.lane.hub.node, o.seq, o.data)
}

func (w *worker) settleOrdered(again []*outgoing, s *segment) ([]*outgoing, error) {
	hub := w.lane.hub
	ids, err := s.cmd.StringSlice()
	if err != nil || len(ids) != len(s.items)+1 {
		return again, fmt.Errorf("%w: %w", errAnswer, err)
	}
	w.server = ids[len(s.items)]
	for i, o := range s.items {
		text, failed := strings.CutPrefix(ids[i], "!")
		switch {
		case failed && classifyAnswer(text) == later:
			again = w.retry(again, []*outgoing{o}, errors.New(text), later)
		case failed:
			hub.abandon(o, errors.New(text))
		case ids[i] == "?":
			hub.abandon(o, ErrUncertain)
		default:
			hub.stats.published.Add(1)
			if o.done != nil {
				p, err := ParsePosition(ids[i])
				o.done(p, err)
			}
		}
	}
	return again, nil
}

// presenceArgs are those of presence.lua for a segment, all of whose items are of one room.
func (h *Hub) presenceArgs(s *segment) ([]string, []any) {
	k, at := h.keys, s.items[0].place
	s.node = h.keeper.name()
	keys := []string{
		k.fence(at.bucket, h.node), k.members(at, s.node), k.users(at), at.key, k.joined(at.bucket, s.node), k.tombstone(at.bucket, s.node),
	}
	if !h.masters.sharded() {
		keys = append(keys, k.nodes())
	}
	args := append(h.common(s), at.name, s.node)
	for _, o := range s.items {
		sign := "+"
		if !o.here {
			sign = "-"
		}
		args = append(args, sign, o.data, h.node+":"+strconv.FormatUint(o.seq, 10))
	}
	return keys, args
}
