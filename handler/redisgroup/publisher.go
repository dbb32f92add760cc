package redisgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An op is what an outgoing is for.
type op byte

const (
	opPlain   op = iota // a message of a plain room
	opOrdered           // a message of an ordered room
	opPeek              // asks where an ordered room stands, in order with what is published to it
	opCome              // a user has come to an ordered room
	opGo                // a user has gone
	opNothing           // it need not be said any more
)

func presence(o op) bool { return o == opCome || o == opGo }

// An outgoing is something to be published.
type outgoing struct {
	place
	op       op
	seq      uint64
	data     []byte
	room     *room  // of a peek; of a message that is not for all, to forget that
	server   string // what the room knows of its stream, see order
	next     string
	deadline time.Time
	unclear  bool   // an earlier attempt may have been taken
	retold   bool   // of a user who has come: Redis may know already
	denials  int    // of a peek
	sentTo   string // identity of the server that got it first
	sentIn   uint64 // number of the first command that had it
	done     func(p Position, err error)
}

// size is what o takes of MaxQueue.
func (o *outgoing) size() int {
	n := len(o.data) + len(o.channel) + 256
	if o.op == opPeek {
		n += 768 // the room, which nobody else may need any more
	}
	return n
}

// message reports whether somebody has said o, who is told if it cannot be queued.
func (o *outgoing) message() bool { return o.op <= opOrdered }

// A someone is a user in a room.
type someone struct{ channel, user string }

func (o *outgoing) who() someone { return someone{o.channel, string(o.data)} }

const (
	maxBatch      = 512
	maxBatchBytes = 1 << 20
	// minSweep is how long a queue must be to be swept.
	minSweep = 256
	// gather is the least time from the begin of a batch of several messages to that of the next. A
	// message that comes alone leaves at once.
	gather = 2 * time.Millisecond
)

// An outbox is the queue of what is to be published at one server.
type outbox struct {
	mu      sync.Mutex
	queue   []*outgoing
	changes map[someone]*outgoing // the last one in the queue about each user
	size    int                   // of what is queued
	max     int
	busy    []*outgoing // taken, and not done with
	flying  int         // size of that
	sweepAt int         // how long the queue is when it is swept next, if that is too much
	closed  bool
	wake    chan struct{}
}

func (b *outbox) init(limit int) {
	b.max, b.wake, b.changes, b.sweepAt = limit, make(chan struct{}, 1), make(map[someone]*outgoing), minSweep
}

// add queues o. Presence and peeks are never refused: they are bounded by the number of members, as
// users who come and go again while the queue is full are not told, nor rooms that were forgotten.
func (b *outbox) add(o *outgoing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	full := b.size+b.flying > b.max
	if full && o.message() {
		return ErrQueueFull
	}
	if full && len(b.queue) >= b.sweepAt {
		b.sweep()
	}
	if presence(o.op) {
		if full && b.replaced(o) {
			return nil
		}
		b.changes[o.who()] = o
	}
	b.queue = append(b.queue, o)
	b.size += o.size()
	signal(b.wake)
	return nil
}

// replaced reports whether o need not be queued, as it makes void what was queued last about its
// user, or says the same. b.mu is held.
func (b *outbox) replaced(o *outgoing) bool {
	last := b.changes[o.who()]
	switch {
	case last == nil:
		return false
	case last.op == o.op:
		return true
	case last.op == opCome && last.retold:
		last.op = opGo // Redis may know the user, and has to be told
		return true
	case last.op == opGo && last.retold:
		last.op = opCome
		return true
	}
	delete(b.changes, o.who())
	last.op = opNothing
	return true
}

// sweep drops what need not be said any more. b.mu is held.
func (b *outbox) sweep() {
	var left []*outgoing
	b.size = 0
	for _, o := range b.queue {
		if o.op == opNothing || o.op == opPeek && o.room.forgotten.Load() {
			continue
		}
		left = append(left, o)
		b.size += o.size()
	}
	b.queue = left
	b.sweepAt = max(minSweep, 2*len(left))
}

// take takes what comes first, and reports whether there may be anything ever again.
func (b *outbox) take() (batch []*outgoing, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for most := together(b.queue[:min(len(b.queue), maxBatch)]); n < most && size < maxBatchBytes; n++ {
		size += b.queue[n].size()
	}
	batch = slices.Clone(b.queue[:n])
	clear(b.queue[:n])
	b.queue = b.queue[n:]
	b.sweepAt = min(b.sweepAt, max(minSweep, 2*len(b.queue)))
	if len(b.queue) == 0 && cap(b.queue) > 4*maxBatch {
		b.queue = nil
	}
	b.size -= size
	for _, o := range batch {
		if presence(o.op) && b.changes[o.who()] == o {
			delete(b.changes, o.who())
		}
	}
	batch = slices.DeleteFunc(batch, func(o *outgoing) bool { return o.op == opNothing })
	if b.busy, b.flying = batch, size; len(batch) == 0 {
		b.busy, b.flying = nil, 0
	}
	if len(b.queue) > 0 {
		signal(b.wake)
	}
	return batch, !b.closed
}

// prepend puts what has to be tried again, or comes from another server's queue, before all else.
func (b *outbox) prepend(first []*outgoing) {
	if len(first) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(first, b.queue...)
	for _, o := range first {
		b.size += o.size()
	}
	signal(b.wake)
}

// done is the end of what was taken. It reports whether that was given up meanwhile.
func (b *outbox) done() (givenUp bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	givenUp = b.busy == nil
	b.busy, b.flying = nil, 0
	return givenUp
}

// extract removes what f chooses, and returns it in its order.
func (b *outbox) extract(f func(o *outgoing) bool) (chosen []*outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []*outgoing
	for _, o := range b.queue {
		if f(o) {
			chosen = append(chosen, o)
			b.size -= o.size()
		} else {
			rest = append(rest, o)
		}
	}
	b.queue = rest
	return chosen
}

func (b *outbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) + len(b.busy)
}

// close ends the queue, and returns what is left: what is on its way, and what waits.
func (b *outbox) close() (flying, waiting []*outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	flying, waiting = b.busy, b.queue
	b.busy, b.queue, b.closed = nil, nil, true
	signal(b.wake)
	return flying, waiting
}

// publishAll publishes what is queued until the Hub is closed: what gathers while a batch is on its
// way is the next one.
func (l *link) publishAll() {
	var delays backoff
	for {
		select {
		case <-l.hub.ctx.Done():
			return
		case <-l.out.wake:
		}
		began := time.Now()
		several, again, ok := l.publishSome()
		switch {
		case !ok:
			return
		case again:
			if !l.hub.pause(delays.next()) {
				return
			}
		default:
			delays.reset()
			if d := gather - time.Since(began); several && d > 0 {
				time.Sleep(d)
			}
		}
	}
}

// abandonAll gives up the messages that are left when the Hub ends.
func (l *link) abandonAll() {
	flying, waiting := l.out.close()
	for _, o := range flying {
		o.unclear = true
	}
	for _, o := range append(flying, waiting...) {
		switch {
		case !o.message():
		case o.unclear:
			l.abandon(o, ErrUncertain)
		default:
			l.abandon(o, ErrClosed)
		}
	}
}

// publishSome publishes a batch. Meanwhile no bucket moves to another link.
func (l *link) publishSome() (several, again, ok bool) {
	l.sending.Lock()
	defer l.sending.Unlock()
	batch, ok := l.out.take()
	if len(batch) == 0 {
		return false, false, ok
	}
	segments, err := l.exchange(batch)
	if l.out.done() { // the Hub was closed, and has told what became of it
		return false, false, false
	}
	var failed []*outgoing
	if err != nil {
		failed = l.retry(nil, batch, err, later)
	}
	for i, s := range segments {
		if overtaken(segments, i) {
			l.abandon(s.items[0], s.cmd.Err())
			continue
		}
		failed = l.settle(failed, s)
	}
	l.out.prepend(failed)
	return len(batch) > 1, len(failed) > 0, ok
}

// overtaken reports whether a later message of its plain room was taken, and this one was not: to
// send it again would change their order.
func overtaken(all []*segment, i int) bool {
	s := all[i]
	return s.op == opPlain && s.cmd.Err() != nil && slices.ContainsFunc(all[i+1:], func(o *segment) bool {
		return o.op == opPlain && o.items[0].channel == s.items[0].channel && o.cmd.Err() == nil
	})
}

// A segment is what one command does: outgoings of one bucket that are of one op, and if that is
// about presence, of one room.
type segment struct {
	op    op
	items []*outgoing
	cmd   *redis.Cmd
	node  string // of presence: the name it was told under
}

// A command says which outgoings one command takes.
type command struct {
	bucket  int
	op      op
	channel string // of presence
}

func (o *outgoing) command() command {
	if presence(o.op) {
		return command{o.bucket, opCome, o.channel}
	}
	return command{o.bucket, o.op, ""}
}

// together returns how many of a queue may go out in one batch. No room is in two of its commands,
// but for messages of plain rooms: if the first had to be sent again, it would come after the
// second.
func together(queue []*outgoing) int {
	in := make(map[string]command)
	for i, o := range queue {
		if o.op == opPlain || o.op == opNothing {
			continue
		}
		now := o.command()
		if before, ok := in[o.channel]; ok && before != now {
			return i
		}
		in[o.channel] = now
	}
	return len(queue)
}

// segments divides a batch into commands. The order of what is of one room stays, as together has
// seen to it that a room is in one command.
func segments(batch []*outgoing) (all []*segment) {
	open := make(map[command]*segment)
	for _, o := range batch {
		s := open[o.command()]
		if s == nil || o.op == opPlain {
			s = &segment{op: o.op}
			all = append(all, s)
			open[o.command()] = s
		}
		s.items = append(s.items, o)
	}
	return all
}

// exchange sends a batch in one round trip. An error means that none of it was sent.
func (l *link) exchange(batch []*outgoing) ([]*segment, error) {
	if l.client == nil {
		return nil, errors.New("the server is not known")
	}
	if l.server == "" {
		if err := l.identify(); err != nil {
			return nil, err
		}
	}
	if err := l.introduce(batch); err != nil {
		return nil, err
	}
	all := segments(batch)
	pipe := l.client.Pipeline()
	for _, s := range all {
		l.queue(pipe, s)
	}
	_, _ = pipe.Exec(l.hub.ctx) // each command has its own error; the client has timeouts
	return all, nil
}

// queue adds a segment's command to pipe.
func (l *link) queue(pipe redis.Pipeliner, s *segment) {
	ctx, first := l.hub.ctx, s.items[0]
	switch s.op {
	case opPlain:
		s.cmd = queueOnce(ctx, pipe, l.hub.servers.command(), first.channel, first.data)
	case opOrdered:
		keys, args := l.publishArgs(s)
		s.cmd = queueScript(ctx, pipe, publishScript, keys, args)
	case opPeek:
		keys, args := make([]string, 0, len(s.items)), l.hub.catchUpArgs(1)
		for _, o := range s.items {
			keys, args = append(keys, o.key), append(args, "")
		}
		s.cmd = queueScript(ctx, pipe, catchUpScript, keys, args)
	default:
		keys, args := l.presenceArgs(s)
		s.cmd = queueScript(ctx, pipe, presenceScript, keys, args)
	}
}

// receiptTime is how long a receipt is kept, see publish.lua.
const receiptTime = time.Hour

// introduce puts a receipt where this node has none, or had one long ago, which is then kept for
// longer: one that is not there later has been lost, and the messages with it. l.sending is held.
func (l *link) introduce(batch []*outgoing) error {
	began, known := time.Now(), l.hub.servers.receipts
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
	if slices.ContainsFunc(s.items, func(o *outgoing) bool { return o.unclear }) {
		again = 1
	}
	return append([]any{l.hub.commands.Add(1), again}, l.hub.streamArgs()...)
}

// streamArgs are the arguments of scripts that say how streams are written, see append.lua.
func (h *Hub) streamArgs() []any {
	return []any{h.servers.command(), h.keys.database, h.cfg.History, h.cfg.HistoryTime.Milliseconds()}
}

func (l *link) publishArgs(s *segment) ([]string, []any) {
	keys := make([]string, 1, 1+len(s.items))
	keys[0] = l.hub.keys.receipt(s.items[0].bucket, l.hub.node)
	args := append(make([]any, 0, 7+2*len(s.items)), l.common(s)...)
	number, again := args[0].(uint64), args[1] == 1
	args = append(args, l.server)
	for _, o := range s.items {
		known := ""
		switch {
		case o.unclear:
			known = o.sentTo + " " + strconv.FormatUint(o.sentIn, 10)
		case !again && o.server == l.server:
			known = o.next
		}
		if !o.unclear {
			o.sentTo, o.sentIn = l.server, number
		}
		keys, args = append(keys, o.key), append(args, known, l.entry(o))
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

// settle tells those who wait what a segment's answer means for them, and adds to again what has to
// be sent again.
func (l *link) settle(again []*outgoing, s *segment) []*outgoing {
	err := s.cmd.Err()
	if err == nil {
		switch s.op {
		case opPlain:
			l.hub.stats.published.Add(1)
		case opOrdered:
			again, err = l.settleOrdered(again, s)
		case opPeek:
			err = l.settlePeek(s)
		default:
			if answer, _ := s.cmd.Text(); strings.HasPrefix(answer, "DEAD") {
				l.hub.keeper.lost(s.node)
			}
		}
	}
	switch what := judge(err); what {
	case done:
		return again
	case refused:
		for _, o := range s.items {
			l.abandon(o, err)
		}
		return again
	default:
		l.learn(err)
		return l.retry(again, s.items, err, what)
	}
}

// retry adds to again those of items that may be tried again, and gives up the others.
func (l *link) retry(again, items []*outgoing, err error, what outcome) []*outgoing {
	if l.client == nil {
		l.hub.servers.reload()
	}
	for _, o := range items {
		o.unclear = o.unclear || what == unclear
		switch {
		case o.op == opPlain && what == unclear:
			l.abandon(o, err)
		case o.message() && time.Now().After(o.deadline):
			e := ErrTimeout
			if o.unclear {
				e = ErrUncertain
			}
			l.abandon(o, fmt.Errorf("%w: %w", e, err))
		default:
			again = append(again, o)
		}
	}
	return again
}

// abandon gives up a message, and says so.
func (l *link) abandon(o *outgoing, err error) {
	if o.op == opPeek {
		l.peekLater(o, err)
		return
	}
	if o.room != nil && o.message() {
		o.room.forgetExcept(o)
	}
	l.hub.stats.lost.Add(1)
	if o.done != nil {
		o.done(Position{}, err)
	} else {
		l.hub.report(&LostError{Room: o.name, Err: err})
	}
}

// peekEvery is when a room asks again where it stands, after Redis has refused that. If it may not
// ask, it is after twice the time each time, up to peekMost doublings.
const (
	peekEvery = 200 * time.Millisecond
	peekMost  = 7
)

// peekLater tries o again. Until it is answered its room takes nothing, and nobody joins.
func (l *link) peekLater(o *outgoing, err error) {
	l.hub.report(&LostError{Room: o.name, Err: err})
	d := peekEvery
	if isDenied(err) {
		d <<= min(o.denials, peekMost)
		o.denials++
	}
	_, _ = l.hub.timers.AfterFunc(d, func() {
		if l.hub.find(o.channel) == o.room {
			_ = l.hub.servers.publish(o) // fails once the Hub is closed
		}
	})
}

var errAnswer = errors.New("redisgroup: an answer of Redis that was not expected")

func (l *link) settleOrdered(again []*outgoing, s *segment) ([]*outgoing, error) {
	ids, err := s.cmd.StringSlice()
	if err != nil || len(ids) != len(s.items)+1 {
		return again, fmt.Errorf("%w: %w", errAnswer, err)
	}
	l.server = ids[len(s.items)]
	for i, o := range s.items {
		text, failed := strings.CutPrefix(ids[i], "!")
		switch {
		case failed && judgeAnswer(text) == later:
			again = l.retry(again, []*outgoing{o}, errors.New(text), later)
		case failed:
			l.abandon(o, errors.New(text))
		case ids[i] == "?":
			l.abandon(o, ErrUncertain)
		default:
			l.hub.stats.published.Add(1)
			if o.done != nil {
				p, err := ParsePosition(ids[i])
				o.done(p, err)
			}
		}
	}
	return again, nil
}

func (l *link) settlePeek(s *segment) error {
	answers, err := s.cmd.Slice()
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
