package redisgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// publishAll publishes what is queued, until the Hub is closed: what has gathered while the last
// batch was on its way, and for a while after that, is the next one.
func (l *link) publishAll() {
	defer l.abandonRest()
	nap := newNap()
	defer nap.close()
	var last pace
	for {
		select {
		case <-l.hub.ctx.Done():
			return
		case <-l.out.wake:
		}
		if d := last.wait(time.Now()); d > 0 {
			nap.sleep(d)
		}
		now, again, ok := l.publishSome()
		switch {
		case now.began.IsZero() && !ok:
			return
		case again && !l.hub.topo.pause(l.delays.next()):
			return
		case !again && !now.began.IsZero():
			last = now
		}
	}
}

// abandonRest gives up the messages that are left when the Hub ends.
func (l *link) abandonRest() {
	l.out.close()
	for _, o := range l.out.extract(func(o *outgoing) bool { return o.op <= opOrdered }) {
		err := ErrClosed
		if o.unclear {
			err = ErrUncertain
		}
		l.abandon([]*outgoing{o}, err)
	}
}

// publishSome publishes a batch, and returns its pace. Meanwhile no bucket moves to another link.
func (l *link) publishSome() (p pace, again, ok bool) {
	l.sending.Lock()
	defer l.sending.Unlock()
	batch, ok := l.out.take()
	if len(batch) == 0 {
		return pace{}, false, ok
	}
	p = paceOf(batch, l.hub.cfg.OneOrder)
	failed := l.publishBatch(batch)
	l.out.prepend(failed)
	l.out.done()
	return p, len(failed) > 0, ok
}

// A segment is what one command does: outgoings of one bucket that follow each other and are of one
// op, and if that is about presence, of one room.
type segment struct {
	op    op
	items []*outgoing
	cmd   redis.Cmder
	node  string // of presence: the name it was told under

	err   error       // of the command
	again []*outgoing // that the server refused for now, though it ran the command
	why   error
}

// segments divides a batch into commands. The order of what is of one room stays.
func (l *link) segments(batch []*outgoing) (all []*segment) {
	open := make(map[lane]*segment)
	for _, o := range batch {
		at := l.alone.lane(o.place)
		s := open[at]
		if s == nil || o.op == opPlain || !s.takes(o) {
			s = &segment{op: o.op}
			all = append(all, s)
			open[at] = s
		}
		s.items = append(s.items, o)
	}
	return all
}

func (s *segment) takes(o *outgoing) bool {
	if presence(s.op) && presence(o.op) {
		return s.items[0].channel == o.channel
	}
	return s.op == o.op
}

func presence(o op) bool { return o == opCome || o == opGo }

// publishBatch sends a batch, in one round trip most often, and returns what has to be sent again.
func (l *link) publishBatch(batch []*outgoing) (again []*outgoing) {
	if l.client == nil {
		l.hub.topo.reload()
		return l.retry(nil, batch, errors.New("the server is not known"), later)
	}
	err := l.hub.topo.ready(l.hub.ctx)
	if err == nil && l.server == "" {
		err = l.identify()
	}
	if err == nil {
		err = l.introduce(batch)
	}
	if err != nil {
		return l.retry(nil, batch, err, later)
	}
	for _, wave := range waves(l.segments(batch)) {
		if err != nil { // what has to be sent again comes first
			again = l.retry(again, itemsOf(wave), err, later)
			continue
		}
		l.exchange(wave)
		again, err = l.judgeAll(again, l.divide(wave))
	}
	if len(again) == 0 {
		l.delays.reset()
	}
	return again
}

// judgeAll does what the answers ask for. It adds to again what has to be sent again, and returns why
// the last of that has, nil if nothing has.
func (l *link) judgeAll(again []*outgoing, all []*segment) (_ []*outgoing, why error) {
	for _, s := range all {
		err := s.err
		if err == nil {
			err = l.settle(s)
		}
		switch what := judge(err); what {
		case done:
			if len(s.again) > 0 {
				again, why = l.retry(again, s.again, s.why, later), s.why
			}
		case refused:
			l.abandon(s.items, err)
		default:
			l.learn(err)
			again, why = l.retry(again, s.items, err, what), err
		}
	}
	return again, why
}

func itemsOf(all []*segment) (items []*outgoing) {
	for _, s := range all {
		items = append(items, s.items...)
	}
	return items
}

// exchange sends commands, and notes what was answered to each. Plain messages go along on the
// connection for subscriptions, where that can.
func (l *link) exchange(all []*segment) {
	wire, sent := l.in.wire.Load(), (*await)(nil)
	var plain, rest []*segment
	for _, s := range all {
		if s.op == opPlain && wire != nil && wire.shared {
			plain = append(plain, s)
		} else {
			rest = append(rest, s)
		}
	}
	if len(plain) > 0 {
		if sent = wire.publish(l.commands(plain), len(plain)); sent == nil {
			rest = all
		}
	}
	if len(rest) > 0 {
		pipe := l.client.Pipeline()
		for _, s := range rest {
			l.queue(pipe, s)
		}
		_, _ = pipe.Exec(context.Background()) // each command has its own error; the client has timeouts
		for _, s := range rest {
			s.err = s.cmd.Err()
		}
	}
	if sent == nil {
		return
	}
	for i, err := range wire.wait(sent, l.client.Options().ReadTimeout) {
		plain[i].err = err
		if apart(err) {
			wire.shared = false
		}
	}
}

// commands are those that publish plain messages.
func (l *link) commands(plain []*segment) (all []byte) {
	for _, s := range plain {
		o := s.items[0]
		all = resp.AppendBulk(resp.AppendArray(all, 3), l.hub.topo.command())
		all = resp.AppendBulk(resp.AppendBulk(all, o.channel), o.data)
	}
	return all
}

// learn does what an error asks for.
func (l *link) learn(err error) {
	switch {
	case isMoved(err):
		l.hub.topo.reload()
	case strings.HasPrefix(err.Error(), "NOSCRIPT"):
		for _, s := range []*redis.Script{publishScript, presenceScript, catchUpScript} {
			if err := s.Load(l.hub.ctx, l.client).Err(); err != nil {
				return
			}
		}
	}
}

// retry adds to again those of items that may be tried again, and gives up the others.
func (l *link) retry(again, items []*outgoing, err error, what outcome) []*outgoing {
	for _, o := range items {
		o.unclear = o.unclear || what == unclear
		switch {
		case o.op == opPlain && what == unclear:
			l.abandon([]*outgoing{o}, err)
		case o.op <= opOrdered && time.Now().After(o.deadline):
			e := ErrTimeout
			if o.unclear {
				e = ErrUncertain
			}
			l.abandon([]*outgoing{o}, fmt.Errorf("%w: %w", e, err))
		default:
			again = append(again, o)
		}
	}
	return again
}

// abandon gives up messages, and says so.
func (l *link) abandon(items []*outgoing, err error) {
	for _, o := range items {
		if o.op == opPeek {
			l.peekLater(o, err)
			continue
		}
		if o.room != nil && o.op <= opOrdered {
			o.room.forgetExcept(o)
		}
		l.hub.stats.lost.Add(1)
		if o.done != nil {
			o.done(Position{}, err)
		} else {
			l.hub.report(&LostError{Room: o.name, Err: err})
		}
	}
}

// peekEvery is when a room asks again where it stands, after Redis has refused that. If it may not
// ask, it is after twice the time each time, up to peekMost doublings.
const (
	peekEvery = 200 * time.Millisecond
	peekMost  = 7
)

// peekLater has o tried again. Until it is answered its room takes nothing, and nobody joins.
func (l *link) peekLater(o *outgoing, err error) {
	l.hub.report(&LostError{Room: o.name, Err: err})
	d := peekEvery
	if isDenied(err) {
		d <<= min(o.denials, peekMost)
		o.denials++
	}
	_, _ = l.hub.timers.AfterFunc(d, func() {
		if l.hub.find(o.channel) == o.room {
			_ = l.hub.topo.publish(o) // fails once the Hub is closed
		}
	})
}

// queue adds a segment's command to pipe.
func (l *link) queue(pipe redis.Pipeliner, s *segment) {
	ctx := context.Background()
	first := s.items[0]
	switch {
	case s.op == opPlain && l.hub.topo.sharded.Load():
		s.cmd = pipe.SPublish(ctx, first.channel, first.data)
	case s.op == opPlain:
		s.cmd = pipe.Publish(ctx, first.channel, first.data)
	case s.op == opOrdered:
		keys, args := l.publishArgs(s)
		s.cmd = publishScript.EvalSha(ctx, pipe, keys, args...)
	case s.op == opPeek:
		keys, args := make([]string, 0, len(s.items)), l.hub.catchUpArgs(1)
		for _, o := range s.items {
			keys, args = append(keys, o.channel), append(args, "")
		}
		s.cmd = catchUpScript.EvalSha(ctx, pipe, keys, args...)
	default:
		keys, args := l.presenceArgs(s)
		s.cmd = presenceScript.EvalSha(ctx, pipe, keys, args...)
	}
}

// settle tells those who wait what a segment's answer means for them.
func (l *link) settle(s *segment) error {
	switch s.op {
	case opPlain:
		l.hub.stats.published.Add(1)
		return nil
	case opOrdered:
		return l.settleOrdered(s)
	case opPeek:
		return l.settlePeek(s)
	}
	return l.settlePresence(s)
}

var errAnswer = errors.New("redisgroup: an answer of Redis that was not expected")

func (l *link) settleOrdered(s *segment) error {
	ids, err := s.cmd.(*redis.Cmd).StringSlice()
	if err != nil || len(ids) != len(s.items)+1 {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	l.server = ids[len(s.items)]
	for i, o := range s.items {
		text, failed := strings.CutPrefix(ids[i], "!")
		switch {
		case failed && judgeAnswer(text) == later:
			s.again, s.why = append(s.again, o), errors.New(text)
		case failed:
			l.abandon([]*outgoing{o}, errors.New(text))
		case ids[i] == "?":
			l.abandon([]*outgoing{o}, ErrUncertain)
		default:
			l.hub.stats.published.Add(1)
			if o.done != nil {
				p, err := ParsePosition(ids[i])
				o.done(p, err)
			}
		}
	}
	return nil
}

func (l *link) settlePeek(s *segment) error {
	answers, err := s.cmd.(*redis.Cmd).Slice()
	if err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	for _, a := range answers {
		i, what, rest := parseAnswer(a)
		if i < 0 || i >= len(s.items) || what != "at" {
			return errAnswer
		}
		id, _ := rest[0].(string)
		p, err := ParsePosition(id)
		if err != nil {
			return err
		}
		s.items[i].room.peeked(p)
	}
	return nil
}

// parseAnswer reads what catchup.lua says of a room: {place, what, ...}. The place is from 0 here,
// and -1 if it makes no sense.
func parseAnswer(a any) (place int, what string, rest []any) {
	fields, _ := a.([]any)
	if len(fields) < 2 {
		return -1, "", nil
	}
	n, _ := fields[0].(int64)
	what, _ = fields[1].(string)
	if what != "later" && len(fields) < 3 {
		return -1, "", nil
	}
	return int(n) - 1, what, fields[2:]
}
