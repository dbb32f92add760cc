package redisgroup

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A joiner reads the past for those who join.
type joiner struct {
	link *link
	*worklist[*joining]
}

func (k *joiner) init(l *link) { k.link, k.worklist = l, newWorklist((*joining).left) }

// maxReads is for how many the past is read at once: their answers are in memory together.
const maxReads = 64

// errAway is why those have not joined who came behind others that Redis did not answer.
var errAway = errors.New("redisgroup: Redis does not answer")

func (k *joiner) run() {
	var delays backoff
	for {
		select {
		case <-k.link.hub.ctx.Done():
			return
		case <-k.wake:
		}
		for todo := k.take(maxReads); len(todo) > 0; todo = k.take(maxReads) {
			if k.readAll(todo) {
				delays.reset()
				continue
			}
			k.fail(k.take(math.MaxInt), errAway) // nobody waits behind others for what will not come
			if !k.link.hub.topo.pause(delays.next()) {
				return
			}
		}
	}
}

// readAll reads the past for those who have not left, in one round trip.
func (k *joiner) readAll(todo []*joining) bool {
	todo = slices.DeleteFunc(todo, (*joining).left)
	if k.link.client == nil {
		return k.fail(todo, errors.New("the server is not known"))
	}
	pipe := k.link.client.Pipeline()
	cmds := make([]*redis.Cmd, len(todo))
	for i, j := range todo {
		since := ""
		if !j.from.Since.IsZero() {
			since = j.from.Since.String()
		}
		r := j.room
		cmds[i] = historyScript.EvalSha(context.Background(), pipe, []string{r.channel, r.hub.keys.users(r.place)},
			since, j.from.History, r.hub.cfg.MaxReplay, 1, r.hub.topo.command(), r.hub.cfg.HistoryTime.Milliseconds())
	}
	_, _ = pipe.Exec(context.Background())
	var failed []*joining
	var err error
	for i, j := range todo {
		e := cmds[i].Err()
		if e == nil {
			e = j.read(cmds[i])
		}
		switch {
		case isDenied(e): // it will be
			j.refuse(e)
		case e != nil:
			failed, err = append(failed, j), e
		}
	}
	return k.fail(failed, err)
}

// fail has those try again whose past was not read, where their room is now, until it takes too
// long.
func (k *joiner) fail(failed []*joining, err error) bool {
	if len(failed) == 0 {
		return true
	}
	if err != nil {
		k.learn(err)
	}
	for _, j := range slices.DeleteFunc(failed, (*joining).left) {
		r := j.room
		if time.Now().Before(j.until) {
			k.link.hub.topo.link(r.bucket).joins.add(j)
			continue
		}
		j.refuse(errors.Join(ErrTimeout, err))
	}
	return false
}

func (j *joining) refuse(err error) {
	j.room.mu.Lock()
	defer j.room.mu.Unlock()
	j.room.refuse(j, err)
}

// left reports whether the past need not be read for j any more.
func (j *joining) left() bool { return j.gone.Load() || j.refused.Load() }

func (k *joiner) learn(err error) {
	if k.link.client != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		_ = historyScript.Load(k.link.hub.ctx, k.link.client).Err()
		return
	}
	if isMoved(err) || k.link.client == nil {
		k.link.hub.topo.reload()
	}
}

// read takes what history.lua says.
func (j *joining) read(cmd *redis.Cmd) error {
	raw, err := cmd.Slice()
	if err != nil || len(raw) != 4 {
		return errAnswer
	}
	got, err := parseEntries(j.room.name, raw[0])
	if err != nil {
		return err
	}
	slices.Reverse(got)
	id, _ := raw[2].(string)
	end, err := ParsePosition(id)
	if err != nil {
		return err
	}
	cut, _ := raw[3].(int64)
	a := Arrival{}
	users, _ := raw[1].([]any)
	for _, u := range users {
		name, _ := u.(string)
		a.Who = append(a.Who, name)
	}
	got, a.Gap = j.missing(got, end, cut == 1)
	var replay [][]byte
	for _, e := range got {
		replay = j.room.hub.replayed(replay, e)
	}
	r := j.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.fired { // it was refused meanwhile
		return nil
	}
	j.arrive, j.replay, j.upTo, j.ready = a, replay, end, true
	if j.back == 0 && (end.Compare(j.from.Since) < 0 || end.Compare(j.at) < 0) {
		j.back = r.renewSoon()
	}
	r.checkJoins()
	return nil
}

// missing returns the entries without the one that j has already, and what is missing after that.
func (j *joining) missing(got []Entry, end Position, cut bool) ([]Entry, *Gap) {
	since := j.from.Since
	if since.IsZero() {
		return got, nil
	}
	if len(got) > 0 && got[0].Position == since {
		return got[1:], nil
	}
	g := &Gap{Room: j.room.name, From: since, To: end, Why: "Redis does not have them any more"}
	if cut {
		g.Why = "they are too much to be sent at once"
	}
	if len(got) > 0 {
		g.To = got[0].Position
	}
	return got, g
}
