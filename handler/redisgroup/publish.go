package redisgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// receiptTime is how long a receipt is kept, see publish.lua.
const receiptTime = time.Hour

// introduce stores a receipt of this node before the first message after a pause, and queries the
// identity of the server. If the receipt is missing later, it was lost, and the messages with it.
func (l *sender) introduce(client *redis.Client, batch []*request) error {
	began := time.Now()
	fresh := func(o *request) bool { return o.op == opOrdered && !o.unclear && !o.over }
	if began.Sub(l.introduced) < receiptTime/2 || !slices.ContainsFunc(batch, fresh) {
		return nil
	}
	keys, args := l.publishArgs(nil)
	var answers []string
	err := l.await(func() (err error) {
		answers, err = publishScript.Run(l.hub.ctx, client, keys, args...).StringSlice()
		return err
	})
	if err == nil && len(answers) == 1 {
		l.server, l.introduced = answers[0], began
	}
	var answered redis.Error
	if errors.As(err, &answered) && classify(err) == refused {
		return nil // the messages will get the error
	}
	return err
}

// streamArgs returns the script arguments that control how streams are written, see append.lua.
func (h *Hub) streamArgs() []any {
	return []any{h.command, h.keys.database, h.cfg.History, h.cfg.HistoryTime.Milliseconds()}
}

// publishArgs returns the arguments of publish.lua for queued requests. The number of the command
// is larger than that of every earlier one, including those that it repeats.
func (l *sender) publishArgs(items []*request) (keys []string, args []any) {
	hub, k := l.hub, &l.hub.keys
	l.node = hub.renewer.name()
	l.number++
	keys = append(make([]string, 0, 1+len(items)), k.receipt(l.bucket, hub.node))
	again := 0
	if slices.ContainsFunc(items, func(o *request) bool { return o.unclear }) {
		again = 1
	}
	args = append(append(make([]any, 0, 9+3*len(items)), l.number, again), hub.streamArgs()...)
	args = append(args, l.server, l.node, receiptTime.Milliseconds())
	for _, o := range items {
		keys = append(keys, o.key)
		from := hub.node + ":" + strconv.FormatUint(o.seq, 10)
		switch {
		case o.op == opPeek:
			args = append(args, "position", "", "")
		case o.op == opOrdered:
			args = append(args, "message", l.sentBefore(o), fmt.Appendf(nil, "%s %s m\n%s", l.server, from, o.data))
		default:
			op := "leave"
			if o.here {
				op = "join"
			}
			keys = append(keys, k.members(o.place, l.node), k.users(o.place), k.tombstone(l.bucket, l.node), k.joined(l.bucket, l.node))
			if hub.cluster == nil {
				keys = append(keys, k.nodes())
			}
			args = append(args, op, o.data, from)
		}
	}
	return keys, args
}

// sentBefore returns the server to which a message was first sent, if that may have accepted it,
// and the number of that command, in the form of publish.lua.
func (l *sender) sentBefore(o *request) string {
	if o.unclear {
		return o.sentTo + " " + strconv.FormatUint(o.sentIn, 10)
	}
	o.sentTo, o.sentIn = l.server, l.number
	return ""
}

// settlePublished reports the results of publish.lua to the callers, and adds the requests that
// must be sent again to again.
func (l *sender) settlePublished(again, items []*request) []*request {
	hub := l.hub
	answers, err := items[0].cmd.StringSlice()
	if err == nil && len(answers) != len(items)+1 {
		err = errAnswer
	}
	if err != nil {
		return l.retry(again, items, err)
	}
	l.server = answers[len(items)]
	for i, o := range items {
		text, failed := strings.CutPrefix(answers[i], "!")
		at, _ := ParsePosition(text)
		switch {
		case failed:
			again = l.retry(again, []*request{o}, answerError(text))
		case text == "?":
			hub.abandon(o, ErrUncertain)
		case text == "DEAD":
			hub.renewer.rejoin(l.node)
		case o.op == opPeek:
			o.room.peeked(at)
		case o.op == opOrdered:
			hub.accepted(o, at)
		}
	}
	return again
}
